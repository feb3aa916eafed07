"""Fields that say nothing in the company in which they come: given all the same, they are refused and not left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import BaseModel


def refuse_idle(given: BaseModel, why: str, *names: str) -> None:
    """Refuse fields that would have no effect.

    Args:
        given: the model, with all fields checked.
        why: said after the names, as in "go with reply_to".
        names: fields that have to be as they are where nobody names them.

    Raises:
        ValueError: one of them is not; the words name it.
    """
    fields = type(given).model_fields
    idle = [name for name in names if getattr(given, name) != fields[name].get_default(call_default_factory=True)]
    if idle:
        raise ValueError(f"{', '.join(idle)} {why}")

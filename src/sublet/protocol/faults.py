"""What is wrong with a field, in our words instead of pydantic's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from pydantic import ValidationError

_WORDS = {
    "extra_forbidden": "there is no such field",
    "missing": "it is missing",
}


def fault_words(fault: Mapping[str, Any]) -> str:
    """Return what is wrong, to stand after the name of the field.

    Args:
        fault: one of ``ValidationError.errors()``.
    """
    kind, message = str(fault["type"]), str(fault["msg"])
    if kind == "string_too_short" and (fault.get("ctx") or {}).get("min_length", 1) == 1:
        return "it is empty"
    message = message.removeprefix("Value error, ")
    if message.startswith("Input should "):
        return "it should " + message.removeprefix("Input should ")
    return _WORDS.get(kind, message)


def malformed(error: ValidationError) -> SubletError:
    """Return the failure of a request whose first wrong field ``error`` names."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the request"
    return SubletError(
        LocalCode.INVALID_ARGUMENT, f"{where}: {fault_words(first)}", "Correct the argument and try again."
    )

"""What is wrong with a field, in our words instead of pydantic's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.near import did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel, ValidationError

_WORDS = {
    "extra_forbidden": "there is no such field",
    "missing": "it is missing",
}


def fault_words(fault: Mapping[str, Any], model: type[BaseModel] | None = None) -> str:
    """Return what is wrong, to stand after the name of the field.

    Args:
        fault: one of ``ValidationError.errors()``.
        model: what was read; where it is given, the field that an unknown one is nearly is named.
    """
    kind, message = str(fault["type"]), str(fault["msg"])
    if kind == "extra_forbidden" and model is not None:
        return _WORDS[kind] + did_you_mean(str(fault["loc"][-1]), fields_at(model, fault["loc"][:-1]))
    if kind == "string_too_short" and (fault.get("ctx") or {}).get("min_length", 1) == 1:
        return "it is empty"
    message = message.removeprefix("Value error, ").partition(" after validation, not ")[0]
    what, should, rest = message.partition(" should ")
    if should and what in ("Input", "List", "String"):
        return f"it should {rest}"
    return _WORDS.get(kind, message)


def fields_at(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """Return the names that fields have at a place in a document of ``model``.

    Args:
        model: of the whole document.
        place: names and numbers as pydantic tells them, with the tags of unions among them.
    """
    known = {model}
    for part in place:
        fields = [(name, field) for one in known for name, field in one.model_fields.items()]
        inner = {one for name, field in fields if part in (name, field.alias) for one in _models(field.annotation)}
        tagged = {
            one for one in known if any(part in get_args(field.annotation) for field in one.model_fields.values())
        }
        known = inner or tagged or known  # else a number, or the key of a mapping
    return sorted({field.alias or name for one in known for name, field in one.model_fields.items()})


def _models(annotation: object) -> set[type[BaseModel]]:
    """Return the models that stand in an annotation, such as those of a union or of a list."""
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        return {annotation}
    return set().union(*(_models(part) for part in get_args(annotation)))


def malformed(error: ValidationError) -> SubletError:
    """Return the failure of a request whose first wrong field ``error`` names."""
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "the request"
    return SubletError(
        LocalCode.INVALID_ARGUMENT, f"{where}: {fault_words(first)}", "Correct the argument and try again."
    )

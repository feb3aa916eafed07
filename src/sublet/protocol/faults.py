"""What is wrong with a field, in our words instead of pydantic's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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

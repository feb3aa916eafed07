"""Keeps the fields on a list and drops all others (SuperAgent 10, step 3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError

MAX_FIELDS: Final = 256
MAX_FIELD_CHARS: Final = 500
_ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Mask:
    """An allow-list of fields, each with all that lies below it.

    Args:
        fields: JSON Pointers (RFC 6901), such as ``/summary`` or ``/items/*/id``; a part ``*`` is any name and any
            index. An item of an array of which nothing is named is dropped.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: no pointer, or too many.
    """

    fields: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.fields or len(self.fields) > MAX_FIELDS:
            raise _bad(f"has {len(self.fields)} fields; between 1 and {MAX_FIELDS} are possible")
        for field in self.fields:
            if not field.startswith("/") or len(field) > MAX_FIELD_CHARS:
                raise _bad(f"names {field[:60]!r}; a field is a JSON Pointer such as /items/*/id")

    def kept(self, value: JsonValue) -> JsonValue:
        """Return ``value`` with these fields only; what is no object or array has none, and stays as it is."""
        return _kept(value, [_parts(field) for field in self.fields])


def _parts(pointer: str) -> tuple[str, ...]:
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))


def _kept(value: JsonValue, paths: Sequence[tuple[str, ...]]) -> JsonValue:
    if any(not path for path in paths):
        return value
    if isinstance(value, dict):
        found: dict[str, JsonValue] = {}
        for name, item in value.items():
            below = [path[1:] for path in paths if path[0] in (name, _ANY)]
            if below and (_holds(item) or () in below):
                found[name] = _kept(item, below)
        return found
    if isinstance(value, list):
        items: list[JsonValue] = []
        for index, item in enumerate(value):
            below = [path[1:] for path in paths if path[0] in (str(index), _ANY)]
            if below and (_holds(item) or () in below):
                items.append(_kept(item, below))
        return items
    return value


def _holds(value: JsonValue) -> bool:
    """Tell whether there is anything below ``value`` that a longer path could name."""
    return isinstance(value, dict | list)


def _bad(what: str) -> SubletError:
    return SubletError(LocalCode.INVALID_ARGUMENT, f"the mask of the answer {what}")

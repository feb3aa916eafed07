"""Mends a value that does not satisfy its schema, without inventing or losing anything (SuperAgent 10, step 4)."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from sublet.policy.guardrail.relaxed import Unreadable, strict_loads
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.canonical import JsonValue, narrow
from sublet.protocol.patterns import Pattern

MAX_REPAIRS: Final = 200
MAX_VISITS: Final = 20_000
"""Places of a value, times the parts of the schema that apply there."""
_NUMBER: Final = Pattern(r"-?(?:0|[1-9][0-9]{0,30})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?")
_LITERALS: Final[dict[str, JsonValue]] = {"true": True, "false": False, "null": None}


def repaired(value: JsonValue, schema: CheckedSchema) -> tuple[JsonValue, list[str]]:
    """Return ``value`` mended as far as the schema says without a condition, and what was done, in words.

    Required names that are missing come from a ``default`` of the schema and from nowhere else. A value of another type
    is converted only where converting it back would give the same: ``"42"`` to 42, ``"true"`` to true, 42 to ``"42"``,
    a string that is the JSON of an object or array to that. ``anyOf``, ``oneOf`` and ``if`` are not looked into, since
    which of them was meant is a guess.
    """
    work = _Repair(schema)
    return work.value(copy.deepcopy(value), schema.document, ""), work.done


class _Repair:
    """One value's repair."""

    def __init__(self, schema: CheckedSchema) -> None:
        self._schema = schema
        self._left = MAX_VISITS
        self.done: list[str] = []

    def value(self, value: JsonValue, subschema: Any, place: str) -> JsonValue:
        parts = self._schema.applied(subschema)
        self._left -= 1 + len(parts)
        if self._left < 0 or len(self.done) >= MAX_REPAIRS or not parts:
            return value
        value = self._converted(value, parts, place)
        if isinstance(value, dict):
            self._fill(value, parts, place)
            for name in value:
                for below in _below(parts, name):
                    value[name] = self.value(value[name], below, f"{place}/{name}")
        elif isinstance(value, list):
            for index, item in enumerate(value):
                for below in _items(parts, index):
                    item = value[index] = self.value(item, below, f"{place}/{index}")
        return value

    def _fill(self, value: dict[str, JsonValue], parts: list[dict[str, Any]], place: str) -> None:
        for name in [name for part in parts for name in part.get("required", ())]:
            if name in value:
                continue
            for below in [one for step in _below(parts, name) for one in self._schema.applied(step)]:
                if "default" in below:
                    value[name] = copy.deepcopy(below["default"])
                    self.done.append(f"filled {place}/{name} from its default")
                    break

    def _converted(self, value: JsonValue, parts: list[dict[str, Any]], place: str) -> JsonValue:
        for part in parts:
            if "type" not in part:
                continue
            wanted = {part["type"]} if isinstance(part["type"], str) else set(part["type"])
            if wanted & _types(value):
                continue
            found = [c for kind in sorted(wanted) for c in _conversions(value, kind)]
            if len(found) == 1:
                self.done.append(f"converted {place or 'the whole'} to {_name(found[0])}")
                value = found[0]
        return value


def _below(parts: list[dict[str, Any]], name: str) -> list[Any]:
    """Return the schemas of the member ``name``."""
    found = []
    for part in parts:
        if name in part.get("properties", {}):
            found.append(part["properties"][name])
        elif "patternProperties" not in part and isinstance(part.get("additionalProperties"), dict):
            found.append(part["additionalProperties"])
    return found


def _items(parts: list[dict[str, Any]], index: int) -> list[Any]:
    """Return the schemas of the item ``index``."""
    found = []
    for part in parts:
        prefix = part.get("prefixItems", ())
        if index < len(prefix):
            found.append(prefix[index])
        elif "items" in part:
            found.append(part["items"])
    return found


def _types(value: JsonValue) -> set[str]:
    if isinstance(value, bool):
        return {"boolean"}
    if isinstance(value, int):
        return {"integer", "number"}
    if isinstance(value, float):
        return {"number"}
    return {_name(value)}


def _name(value: JsonValue) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
    return names[type(value)]


def _conversions(value: JsonValue, kind: str) -> Iterable[JsonValue]:
    """Return ``value`` as ``kind``, where that and only that is what it says."""
    if kind == "string":
        if isinstance(value, bool):
            return ["true" if value else "false"]
        # A fraction is written in more than one way, so that a string of it may not be the one that was meant.
        return [str(value)] if isinstance(value, int) else []
    if not isinstance(value, str):
        return []
    text = value.strip()
    if kind in ("boolean", "null"):
        literal = _LITERALS.get(text, value)
        return [literal] if _name(literal) == kind else []
    if kind in ("object", "array"):
        try:
            read = narrow(strict_loads(text))
        except (Unreadable, ValueError):
            return []
        return [read] if _name(read) == kind else []
    number = _number(text)
    return [number] if number is not None and kind in _types(number) else []


def _number(text: str) -> int | float | None:
    """Return the number that ``text`` is in the form of JSON, if a double holds it without rounding what is written."""
    if not _NUMBER.fullmatch(text):
        return None
    try:
        exact = Decimal(text)
        found = narrow(float(exact))
        same = Decimal(repr(found)) == exact
    except (ValueError, InvalidOperation, OverflowError):
        return None
    assert isinstance(found, int | float)
    return found if same else None

"""Canonical JSON: one byte string per value, so that both sides sign and hash the same bytes."""

from __future__ import annotations

import json
import math
from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

MAX_DEPTH = 32
_MAX_SAFE_INTEGER = 2**53 - 1


def canonical_json(value: JsonValue) -> bytes:
    """Return ``value`` in the form of RFC 8785: sorted keys (by UTF-16 code units), no spaces, UTF-8.

    Fractions are refused, since signed messages carry integers and strings only and no two languages print
    fractions alike; so are integers beyond 2**53, which a protobuf ``Value`` rounds.

    Raises:
        ValueError: a fraction, a too large integer, a lone surrogate, or nesting beyond ``MAX_DEPTH``.
    """
    return json.dumps(_ordered(value, 0), ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def _ordered(value: JsonValue, depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        return {key: _ordered(value[key], depth + 1) for key in sorted(value, key=_utf16)}
    if isinstance(value, list):
        return [_ordered(item, depth + 1) for item in value]
    if isinstance(value, float):
        raise ValueError("a fraction has no canonical form here")
    if isinstance(value, int) and abs(value) > _MAX_SAFE_INTEGER:
        raise ValueError("integer beyond 2**53")
    return value


def _utf16(key: str) -> bytes:
    return key.encode("utf-16-be")


def narrow(value: JsonValue) -> JsonValue:
    """Return received JSON with whole floats as integers, since a protobuf ``Value`` makes every number a double.

    Fractions stay: a field that nobody here knows may hold one.

    Raises:
        ValueError: nesting beyond ``MAX_DEPTH``, a number that is not finite, or an integer that a double rounds.
    """
    return _narrowed(value, 0)


def _narrowed(value: JsonValue, depth: int) -> JsonValue:
    if depth > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        return {key: _narrowed(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [_narrowed(item, depth + 1) for item in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("a number that is not finite")
        if not value.is_integer():
            return value
        value = int(value)
    if isinstance(value, int) and abs(value) > _MAX_SAFE_INTEGER:
        raise ValueError("integer beyond 2**53")
    return value

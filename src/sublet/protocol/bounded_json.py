"""The one parser of JSON that comes from elsewhere: its size, depth and number of values are bounded before it builds
anything.

It takes UTF-8 alone, without a byte order mark, since every bound here looks at bytes that UTF-16 and UTF-32 write in
another way. It refuses what two implementations could read as two things: a name twice in one object, ``NaN``, numbers
that are not finite, and half a surrogate pair. ``tests/attacks/test_net_json.py`` keeps ``json.loads`` out of all but a
short list of modules.

A value costs up to 30 times the bytes that it takes as JSON (``{"":0}``), so values are counted as well as bytes.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Sequence
from enum import Enum
from itertools import accumulate
from typing import Any, Final, cast

from sublet.protocol.canonical import JsonValue

MAX_BYTES: Final = 8 << 20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 100_000
"""Values of one text, names of members among them; at most some 25 MiB of Python."""

_SIGNS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))
_BETWEEN: Final = b",:[{"
_NOT_BETWEEN: Final = bytes(set(range(256)) - set(_BETWEEN))


class Why(Enum):
    """Which bound a text breaks, or that it is no JSON."""

    TOO_LARGE = "it is too large"
    TOO_DEEP = "it is nested too deep"
    TOO_MANY = "it holds too many values"
    NOT_UTF8 = "it is not UTF-8"
    HALF = "it holds half of a surrogate pair"
    TWICE = "a name is there twice in one object"
    MALFORMED = "it is no JSON"


class BadJson(ValueError):
    """A text that is refused; ``why`` tells the kind, the message tells it in words."""

    def __init__(self, why: Why, detail: str = "") -> None:
        super().__init__(detail or why.value)
        self.why = why


def parse_json(
    raw: bytes | bytearray | str,
    *,
    max_bytes: int = MAX_BYTES,
    depth: int = MAX_DEPTH,
    values: int = MAX_VALUES,
    strict: bool = True,
) -> JsonValue:
    """Return the value that ``raw`` is.

    Args:
        raw: JSON, in UTF-8 where it is bytes.
        max_bytes: most bytes of it.
        depth: how many objects and arrays may be within each other.
        values: how many values it may hold, names of members among them.
        strict: whether line breaks and other control characters in strings are refused, as JSON does.

    Raises:
        BadJson: a ``ValueError``: it breaks a bound or is no JSON.
    """
    return parse_counted(raw, max_bytes=max_bytes, depth=depth, values=values, strict=strict)[0]


def parse_counted(
    raw: bytes | bytearray | str,
    *,
    max_bytes: int = MAX_BYTES,
    depth: int = MAX_DEPTH,
    values: int = MAX_VALUES,
    strict: bool = True,
) -> tuple[JsonValue, int]:
    """Return the value that ``raw`` is, and how many values it holds at most: as ``parse_json``.

    Raises:
        BadJson: as ``parse_json``.
    """
    encoded = _encoded(raw)
    count = check_json(encoded, max_bytes=max_bytes, depth=depth, values=values)
    try:
        text = encoded.decode()
    except UnicodeDecodeError:
        raise BadJson(Why.NOT_UTF8) from None
    try:
        value = json.loads(
            text, strict=strict, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
        )
        if "\\" in text and "\\u" in text:  # one character is found much faster than two
            json.dumps(value, ensure_ascii=False).encode()
    except BadJson:
        raise
    except UnicodeEncodeError:
        raise BadJson(Why.HALF) from None
    except RecursionError:
        raise BadJson(Why.TOO_DEEP) from None
    except ValueError as error:  # also a number of thousands of digits
        raise BadJson(Why.MALFORMED, str(error)[:200]) from None
    return cast("JsonValue", value), count


def check_json(raw: bytes, *, max_bytes: int = MAX_BYTES, depth: int = MAX_DEPTH, values: int = MAX_VALUES) -> int:
    """Check the bounds alone, in one pass that builds nothing; for a text that another parser of UTF-8 reads.

    Returns:
        how many values it holds at most, itself included.

    Raises:
        BadJson: it breaks a bound. That it is JSON is not looked at.
    """
    if len(raw) > max_bytes:
        raise BadJson(Why.TOO_LARGE, f"it is larger than {max_bytes} bytes")
    between = sum(map(raw.count, (b",", b":", b"[", b"{")))
    if between > min(values, depth):  # else it can break none
        plain = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
        if plain.count(b'"') > 2 * values:  # before they become as many objects
            raise BadJson(Why.TOO_MANY, f"it holds more than {values} values")
        outside = b"".join(plain.split(b'"')[::2])  # what is in no string
        brackets = outside.translate(_SIGNS, _NOT_BRACKETS)
        # Before they are counted one by one; closing ones alone are no JSON, and may be as many as there are bytes.
        few = brackets[: 2 * values + 2]
        if max(accumulate(array("b", few)), default=0) > depth:
            raise BadJson(Why.TOO_DEEP, f"it is nested deeper than {depth}")
        between = len(outside.translate(None, _NOT_BETWEEN))
        if len(few) < len(brackets) or between > values:
            raise BadJson(Why.TOO_MANY, f"it holds more than {values} values")
    return between + 1


def _encoded(raw: bytes | bytearray | str) -> bytes:
    if not isinstance(raw, str):
        return bytes(raw)
    try:
        return raw.encode()
    except UnicodeEncodeError:
        raise BadJson(Why.HALF) from None


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        name = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadJson(Why.TWICE, f"the name {name[:100]!r} is there twice in one object")
    return found


def _no_constant(name: str) -> None:
    raise BadJson(Why.MALFORMED, f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise BadJson(Why.MALFORMED, "a number is not finite")
    return number

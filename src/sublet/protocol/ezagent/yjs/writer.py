"""Writing numbers, texts and values of the lib0 encoding, as yrs writes them."""

from __future__ import annotations

import math
import struct
from typing import Final

from sublet.protocol.ezagent.yjs.update import MAX_VALUE_DEPTH, Value

_F32: Final = struct.Struct(">f")
_F64: Final = struct.Struct(">d")
_LARGEST_F32: Final = 3.4028234663852886e38


def write_number(out: bytearray, value: int) -> None:
    """Append an unsigned number of variable length."""
    while value > 127:
        out.append(128 | value & 127)
        value >>= 7
    out.append(value)


def write_text(out: bytearray, text: str) -> None:
    """Append text after its length in bytes."""
    raw = text.encode()
    write_number(out, len(raw))
    out += raw


def write_value(out: bytearray, value: Value, depth: int = 0) -> None:
    """Append a plain value.

    Raises:
        ValueError: a number that is not finite or that a double can't hold, text that is not Unicode, or a value
            that is nested deeper than a reader takes.
    """
    if depth > MAX_VALUE_DEPTH:
        raise ValueError("a value is nested too deep")
    if isinstance(value, str):
        out.append(119)
        write_text(out, value)
    elif value is None:
        out.append(126)
    elif isinstance(value, bool):
        out.append(120 if value else 121)
    elif isinstance(value, int | float):
        _write_double(out, value)
    elif isinstance(value, bytes):
        out.append(116)
        write_number(out, len(value))
        out += value
    elif isinstance(value, dict):
        out.append(118)
        write_number(out, len(value))
        for key, item in value.items():
            write_text(out, key)
            write_value(out, item, depth + 1)
    else:
        out.append(117)
        write_number(out, len(value))
        for item in value:
            write_value(out, item, depth + 1)


def _write_double(out: bytearray, value: float) -> None:
    double = float(value)
    if not math.isfinite(double) or double != value:
        raise ValueError("a number that a double can't hold")
    if abs(double) <= _LARGEST_F32 and _F32.unpack(_F32.pack(double))[0] == double:
        out.append(124)
        out += _F32.pack(double)
    else:
        out.append(123)
        out += _F64.pack(double)

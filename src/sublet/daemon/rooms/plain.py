"""What rooms hold, as JSON: members of a room write bytes, or numbers that are none, where a face can show neither."""

from __future__ import annotations

import base64
import math
from typing import Any


def plain(value: Any) -> Any:
    """Return a value that JSON can say: bytes as base64 in ``{"base64": …}``, and a number that is none as null.

    Args:
        value: what an operation answers. Bytes that are all of an answer are a file, and stay.
    """
    return value if isinstance(value, bytes) else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "replace").decode()
    return value

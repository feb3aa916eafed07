"""An object as it came over the wire: parsed for policy, and passed on as the very text that it was.

Parsing refuses what two readers could read as two things, so the text means to its receiver what it meant to policy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from sublet.protocol.canonical import JsonValue

VALUE_BYTES: Final = 256
"""What a value costs once it is parsed, besides its text."""

MAX_CHAR_BYTES: Final = 4


class Wire(dict[str, JsonValue]):
    """An object of a member. Nobody changes it.

    Args:
        value: what it is.
        text: as it came, or is to be sent; ASCII alone, so that its length is its bytes in memory and on the wire.
        weight: bytes of memory that it takes at most, parsed and as a text.
    """

    __slots__ = ("text", "weight")

    def __init__(self, value: Mapping[str, JsonValue], text: str, weight: int) -> None:
        super().__init__(value)
        self.text = text
        self.weight = weight


def with_text(arguments: JsonValue, text: str, values: int) -> JsonValue:
    """Return ``arguments`` with the text of the last of them, where that is an object.

    Args:
        arguments: what ``text`` is: the arguments of an event, its name before them, or of an answer.
        text: JSON.
        values: how many values it holds at most.
    """
    if not isinstance(arguments, list) or not 1 <= len(arguments) <= 2 or not isinstance(arguments[-1], dict):
        return arguments
    last, before = arguments[-1], arguments[:-1]
    own = text.strip()[1:-1] if text.isascii() else None
    if before and own is not None:
        _name, _, own = own.partition(",")
        if not isinstance(before[0], str) or "," in before[0]:
            own = None  # where the name ends is not plain
    own = json.dumps(last) if own is None else own.strip()
    parsed = len(text) * (1 if text.isascii() else MAX_CHAR_BYTES)
    return [*before, Wire(last, own, len(own) + parsed + values * VALUE_BYTES)]


def wire_size(value: Mapping[str, JsonValue]) -> int:
    """Return how many bytes an object is on the wire."""
    return len(value.text if isinstance(value, Wire) else json.dumps(value))


def wire_text(arguments: list[JsonValue], **options: object) -> str:
    """Return ``arguments`` as JSON; what came from elsewhere is written as it came.

    Args:
        arguments: of an event, its name before them, or of an answer.
        options: of ``json.dumps``, for all others.
    """
    texts = (one.text if isinstance(one, Wire) else json.dumps(one, **options) for one in arguments)  # type: ignore[arg-type]
    return f"[{','.join(texts)}]"

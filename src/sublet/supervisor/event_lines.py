"""Programs that print what they do as events, one JSON object a line, are told as work.

What is no event is told as it stands, so another program in its place, or another version of it, loses nothing by it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Final

from sublet.protocol.bounded_json import parse_json

MAX_LINE_BYTES: Final = 4 << 20
"""Of one event; a longer one is left out, and that is told."""


class EventLines(ABC):
    """Turns what is printed into what is said, piece by piece. ``last_word`` is its answer, where there was one.

    Args:
        note: is told what it does, in one line.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.last_word: str | None = None
        self._note = note
        self._line = bytearray()
        self._too_long = False

    @abstractmethod
    def words(self, event: Mapping[str, Any]) -> str:
        """Return what an event says; what it does goes to ``note``."""

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """Return what to tell of ``data``; ``final`` is for the end, where half a line may be left."""
        told: list[bytes] = []
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._add(part)
            told.append(self._told(b"\n"))
        self._add(rest)
        if final and (self._line or self._too_long):
            told.append(self._told(b""))
        return b"".join(told)

    def _add(self, part: bytes) -> None:
        if self._too_long or len(self._line) + len(part) > MAX_LINE_BYTES:
            self._too_long = True
            self._line.clear()
            return
        self._line += part

    def _told(self, end: bytes) -> bytes:
        line, too_long = bytes(self._line), self._too_long
        self._line.clear()
        self._too_long = False
        if too_long:
            self._note("left out: an event that is too long to be shown")
            return b""
        event = _event(line)
        if event is None:
            return line + end
        return self.words(event).encode("utf-8", "replace")


def _event(line: bytes) -> dict[str, Any] | None:
    """Return the event in a line; None where it is none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found: Any = parse_json(line, max_bytes=MAX_LINE_BYTES)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None

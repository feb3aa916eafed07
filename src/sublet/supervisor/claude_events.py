"""What Claude Code prints as events, told as work: what it says, which tool it uses, on which file, by which command.

It prints one JSON object a line. What is no event is told as it stands, so another program in its place, or another
version of it, loses nothing but this.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from sublet.protocol.bounded_json import parse_json
from sublet.supervisor.tool_words import tool_line

MAX_LINE_BYTES: Final = 4 << 20
"""Of one event; a longer one is left out, and that is told."""


class ClaudeEvents:
    """Turns what is printed into what is said, piece by piece. ``last_word`` is its answer, where there was one.

    Args:
        note: is told what it does, in one line.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self.last_word: str | None = None
        self._note = note
        self._line = bytearray()
        self._too_long = False
        self._said = ""

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
        return self._words(event).encode("utf-8", "replace")

    def _words(self, event: Mapping[str, Any]) -> str:
        kind = event.get("type")
        if kind == "assistant":
            message = event.get("message")
            content = message.get("content") if isinstance(message, dict) else None
            return "".join(map(self._block, content if isinstance(content, list) else ()))
        if kind == "result":
            return self._end(event)
        return ""  # how it was set up, and what tools returned to the model

    def _block(self, block: object) -> str:
        if not isinstance(block, dict):
            return ""
        if block.get("type") == "text" and isinstance(text := block.get("text"), str) and text.strip():
            self._said = text.strip()
            return f"{self._said}\n"
        if block.get("type") == "tool_use":
            name, given = block.get("name"), block.get("input")
            self._note(f"tool: {tool_line(str(name), given if isinstance(given, dict) else {})}")
        return ""

    def _end(self, event: Mapping[str, Any]) -> str:
        result = event.get("result")
        if not isinstance(result, str):
            why = event.get("subtype")
            if event.get("is_error") or why != "success":
                self._note(f"ended: {json.dumps(why)[:100]}")
            return ""
        self.last_word = result
        # Its last word is what it has said last; where it was not, as with an error, it is told now.
        return "" if result.strip() == self._said else f"{result.strip()}\n"


def _event(line: bytes) -> dict[str, Any] | None:
    """Return the event in a line; None where it is none."""
    if not line.lstrip().startswith(b"{"):
        return None
    try:
        found: Any = parse_json(line, max_bytes=MAX_LINE_BYTES)
    except ValueError:
        return None
    return found if isinstance(found, dict) and isinstance(found.get("type"), str) else None

"""What Gemini prints as events, told as work: ``gemini --output-format stream-json``.

Its events are described by https://geminicli.com/docs/cli/headless; those of 0.61.0 were recorded
(``tests/supervisor/recorded``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sublet.supervisor.event_lines import EventLines
from sublet.supervisor.tool_words import tool_line

MAX_CALLS: Final = 256
"""Calls that are remembered until they end."""
MAX_ANSWER_CHARS: Final = 64 * 1024
"""Of its last words, the end of which is its answer."""


class GeminiEvents(EventLines):
    """``EventLines`` of ``gemini --output-format stream-json``."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(note)
        self._calls: dict[str, str] = {}
        self._speaking = False

    def words(self, event: Mapping[str, Any]) -> str:
        """``EventLines.words``."""
        kind = event["type"]
        if kind == "message":
            return self._message(event)
        before = self._broken_off()
        if kind == "tool_use":
            self._call(event)
        elif kind == "tool_result" and event.get("status") == "error":
            self._note(f"failed: {self._calls.get(_id(event), 'a tool')}")
        elif kind in ("error", "result"):
            return before + self._failure(event.get("error") if kind == "result" else event)
        return before

    def _message(self, event: Mapping[str, Any]) -> str:
        text = event.get("content")
        if event.get("role") != "assistant" or not isinstance(text, str):
            return ""
        said = self.last_word if self._speaking and self.last_word else ""
        self._speaking = True
        self.last_word = (said + text)[-MAX_ANSWER_CHARS:]
        return text

    def _broken_off(self) -> str:
        """Return the end of the line that it has spoken in, where it does something else now."""
        ended = self._speaking and not (self.last_word or "").endswith("\n")
        self._speaking = False
        return "\n" if ended else ""

    def _call(self, event: Mapping[str, Any]) -> None:
        given = event.get("parameters")
        line = tool_line(str(event.get("tool_name")), given if isinstance(given, dict) else {})
        self._note(f"tool: {line}")
        self._calls[_id(event)] = line
        if len(self._calls) > MAX_CALLS:
            del self._calls[next(iter(self._calls))]

    def _failure(self, told: object) -> str:
        message = told.get("message") if isinstance(told, dict) else None
        return f"{message}\n" if isinstance(message, str) else ""


def _id(event: Mapping[str, Any]) -> str:
    return str(event.get("tool_id"))[:100]

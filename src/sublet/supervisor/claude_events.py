"""What Claude Code prints as events, told as work: what it says, which tool it uses, on which file or command."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sublet.supervisor.event_lines import EventLines
from sublet.supervisor.tool_words import tool_line


class ClaudeEvents(EventLines):
    """``EventLines`` of ``claude -p --output-format stream-json``."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(note)
        self._said = ""

    def words(self, event: Mapping[str, Any]) -> str:
        """``EventLines.words``."""
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

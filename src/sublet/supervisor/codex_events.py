"""What Codex prints as events, told as work: ``codex exec --json`` tells of items, each of which begins and ends.

Its events are described by https://docs.rs/codex-codes/latest/codex_codes/io/events; those of 0.171.0 were recorded
(``tests/supervisor/recorded``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sublet.supervisor.event_lines import EventLines
from sublet.supervisor.tool_words import tool_line

MAX_CALLS: Final = 256
"""Calls that are remembered until they end."""
_FAILED: Final = frozenset({"failed", "declined"})


class CodexEvents(EventLines):
    """``EventLines`` of ``codex exec --json``."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__(note)
        self._begun: dict[str, str] = {}
        self._plan = ""

    def words(self, event: Mapping[str, Any]) -> str:
        """``EventLines.words``."""
        kind, item = event["type"], event.get("item")
        if kind.startswith("item.") and isinstance(item, dict):
            return self._item(item, over=kind == "item.completed")
        if kind == "turn.failed":
            return self._failure(event.get("error"))
        return self._failure(event) if kind == "error" else ""

    def _item(self, item: Mapping[str, Any], *, over: bool) -> str:
        kind = item.get("type")
        if kind == "agent_message":
            text = item.get("text")
            if not over or not isinstance(text, str) or not text.strip():
                return ""
            self.last_word = text.strip()
            return f"{self.last_word}\n"
        if kind == "todo_list":
            self._planned(item.get("items"))
        elif kind == "error":
            return self._failure(item)
        elif kind in _CALLS:
            self._call(item, _CALLS[kind](item), over=over)
        return ""

    def _call(self, item: Mapping[str, Any], line: str, *, over: bool) -> None:
        """Tell a call once, when it begins or, of one that only ends, then; and that it has failed."""
        key = str(item.get("id"))[:100]
        if self._begun.pop(key, None) != line and line:
            self._note(f"tool: {line}")
        if not over:
            self._begun[key] = line
            if len(self._begun) > MAX_CALLS:
                del self._begun[next(iter(self._begun))]
        elif item.get("status") in _FAILED:
            self._note(f"failed: {line}")

    def _planned(self, items: object) -> None:
        steps = [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
        done = [one for one in steps if one.get("completed") is True]
        now = next((one for one in steps if one not in done), None)
        plan = f"plan: {len(done)} of {len(steps)} done" + (f"; now: {now.get('text')}" if now is not None else "")
        if steps and plan != self._plan:
            self._plan = plan
            self._note(plan)

    def _failure(self, told: object) -> str:
        message = told.get("message") if isinstance(told, dict) else None
        return f"{message}\n" if isinstance(message, str) else ""


def _changed(item: Mapping[str, Any]) -> str:
    changes = item.get("changes")
    paths = [str(one.get("path")) for one in changes if isinstance(one, dict)] if isinstance(changes, list) else []
    return tool_line("edit", {"path": ", ".join(paths)})


def _of_a_server(item: Mapping[str, Any]) -> str:
    given = item.get("arguments")
    return tool_line(f"{item.get('server')}.{item.get('tool')}", given if isinstance(given, dict) else {})


_CALLS: Final[Mapping[object, Callable[[Mapping[str, Any]], str]]] = {
    "command_execution": lambda item: tool_line("shell", {"command": item.get("command")}),
    "file_change": _changed,
    "mcp_tool_call": _of_a_server,
    "web_search": lambda item: tool_line("search", {"query": item.get("query")}),
}

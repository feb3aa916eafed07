"""A gate for tests of providers: allows by a list, and keeps what it was asked and told."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sublet.policy.path_denies import PathDenies
from sublet.protocol.canonical import JsonValue
from sublet.supervisor.tool_gate import ToolCall, Verdict


class ListGate:
    """Allows the tools of a list, or all where there is none.

    Args:
        allowed: names of tools; None for every one.
    """

    def __init__(self, allowed: Collection[str] | None = None) -> None:
        self._allowed = allowed
        self.asked: list[ToolCall] = []
        self.hidden: set[str] = set()
        self.denies: PathDenies | None = None
        self.told: list[tuple[str, str | None]] = []

    async def ask(self, call: ToolCall) -> Verdict:
        """``ToolGate.ask``."""
        self.asked.append(call)
        allowed = self._allowed is None or call.tool in self._allowed
        return Verdict(allowed, "test", "list", "it is in the list" if allowed else f"{call.tool} is not in the list")

    def reveals(self, call: ToolCall, path: str) -> bool:
        """``ToolGate.reveals``."""
        return path not in self.hidden

    def conceals(self, call: ToolCall, path: str) -> bool:
        """``ToolGate.conceals``."""
        return False

    def path_denies(self) -> PathDenies | None:
        """``ToolGate.path_denies``."""
        return self.denies

    async def ended(
        self, call: ToolCall, *, error: str | None = None, result: Mapping[str, JsonValue] | None = None
    ) -> None:
        """``ToolGate.ended``."""
        self.told.append((call.tool, error))

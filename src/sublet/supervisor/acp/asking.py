"""Calls of an ACP agent that policy was asked about, and what became of each."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sublet.protocol.text import clean_line
from sublet.supervisor.job import Job, Output, Report
from sublet.supervisor.tool_gate import ToolCall, Verdict

MAX_NOTES: Final = 500
"""What is told one by one."""
MAX_NOTE_CHARS: Final = 300
MAX_CALLS: Final = 1_024
"""Calls whose end is waited for; the oldest is forgotten beyond that."""


class ToolQuestions:
    """Asks the gate of a job, and tells what the agent does.

    Args:
        job: whose gate; without one nothing is allowed.
        report: is told in notes, of which there are ``MAX_NOTES``.
    """

    def __init__(self, job: Job, report: Report) -> None:
        self._gate = job.gate
        self._report = report
        self._notes = 0
        self.refused = 0
        """How many calls were refused."""
        self._asked: OrderedDict[str, ToolCall] = OrderedDict()

    async def may(self, call: ToolCall, shown: str) -> Verdict | None:
        """Return None where ``call`` may be made, else the refusal; ``shown`` is what people read of it."""
        if self._gate is None:
            verdict = Verdict(False, "global", "unavailable", "nobody decides on tools here")
        else:
            verdict = await self._gate.ask(call)
            if verdict.allowed:
                self._asked[call.call_id] = call
                if len(self._asked) > MAX_CALLS:
                    await self.ended(next(iter(self._asked)), "too many calls at once")
                return None
        self.refused += 1
        self.note("refused", f"{shown}: {verdict.reason}")
        return verdict

    async def ended(self, call_id: str, error: str | None) -> None:
        """Tell how a call ended that was allowed; of any other nothing is told."""
        call = self._asked.pop(call_id, None)
        if call is not None and self._gate is not None:
            await self._gate.ended(call, error=error)

    async def finish(self) -> None:
        """Say of every call that was allowed and whose end was never told that nobody knows how it ended."""
        for call_id in list(self._asked):
            await self.ended(call_id, "the agent did not say how it ended")

    def note(self, kind: str, text: str) -> None:
        """Tell in one line what happens."""
        self._notes += 1
        if self._notes <= MAX_NOTES:
            self._report(Output("note", f"{kind}: {clean_line(text, MAX_NOTE_CHARS)}\n"))
        elif self._notes == MAX_NOTES + 1:
            self._report(Output("note", "Further tool calls are not told here.\n"))

"""Our side of a conversation with an ACP agent: it is shown nothing and may do nothing that policy did not allow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import acp
from acp.schema import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AllowedOutcome,
    CurrentModeUpdate,
    DeniedOutcome,
    PermissionOption,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
)

from sublet.protocol.text import clean_line
from sublet.supervisor.acp.tool_calls import TooLarge, choose, tool_call
from sublet.supervisor.model import Job, Output, Report
from sublet.supervisor.output import Capture
from sublet.supervisor.tools import ToolCall

MAX_NOTES: Final = 500
"""Tool calls that are told one by one."""
MAX_NOTE_CHARS: Final = 300
MAX_CALLS: Final = 1_024
"""Calls whose end is waited for; the oldest is forgotten beyond that."""


class AgentClient:
    """What the agent reaches of us: the methods of ``acp.Client`` that it was offered, and no other.

    Args:
        job: the lease that it works for, and the gate that every call has to pass.
        said: takes what the agent says.
        report: is told what it does.
        left_mode: is called with the mode that it changed to by itself.
    """

    def __init__(self, job: Job, said: Capture, report: Report, left_mode: Callable[[str], None]) -> None:
        self._job = job
        self._said = said
        self._report = report
        self._left_mode = left_mode
        self._notes = 0
        self._asked: OrderedDict[str, ToolCall] = OrderedDict()
        self._broken_off = False
        self.listening = False
        """Whether what it says now is said to us; what it tells of an earlier conversation is not."""
        self.session_id = ""
        """The only session that it may speak of."""

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Ask the gate, and answer by the option that says just what it decided."""
        self._own(session_id)
        allowed = await self._may(tool_call)
        option = choose(options, allowed=allowed)
        if allowed and option is None:
            # It offers to be allowed for ever only, or not at all.
            self._note("refused", f"{tool_call.title or tool_call.tool_call_id}: it can't be allowed just once")
            await self._forget(tool_call.tool_call_id, "it can't be allowed just once")
            option = choose(options, allowed=False)
        if option is None:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=option))

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        """Take what the agent says and does."""
        if not self.listening or session_id != self.session_id:
            return
        if isinstance(update, AgentMessageChunk):
            if isinstance(update.content, TextContentBlock):
                if self._broken_off:
                    self._said.feed(b"\n\n")
                    self._broken_off = False
                self._said.feed(update.content.text.encode("utf-8", "replace"))
        elif isinstance(update, ToolCallStart):
            self._broken_off = True
            self._note("tool", update.title)
            await self._ended(update)
        elif isinstance(update, ToolCallProgress):
            await self._ended(update)
        elif isinstance(update, CurrentModeUpdate):
            self._left_mode(update.current_mode_id)
        elif isinstance(update, AgentThoughtChunk):
            self._broken_off = True

    async def finish(self) -> None:
        """Say of every call that was allowed and whose end was never told that nobody knows how it ended."""
        for call_id in list(self._asked):
            await self._forget(call_id, "the agent did not say how it ended")

    async def _may(self, update: ToolCallUpdate) -> bool:
        shown = update.title or update.tool_call_id
        try:
            call = tool_call(update, self._job.resources)
        except TooLarge:
            self._note("refused", f"{shown}: its arguments are too large to decide on")
            return False
        if self._job.gate is None:
            self._note("refused", f"{shown}: nobody decides on tools here")
            return False
        verdict = await self._job.gate.ask(call)
        if not verdict.allowed:
            self._note("refused", f"{shown}: {verdict.reason}")
            return False
        self._asked[call.call_id] = call
        if len(self._asked) > MAX_CALLS:
            await self._forget(next(iter(self._asked)), "too many calls at once")
        return True

    async def _ended(self, update: ToolCallStart | ToolCallProgress) -> None:
        if update.status == "completed":
            await self._forget(update.tool_call_id, None)
        elif update.status == "failed":
            await self._forget(update.tool_call_id, "the tool failed")

    async def _forget(self, call_id: str, error: str | None) -> None:
        call = self._asked.pop(call_id, None)
        if call is not None and self._job.gate is not None:
            await self._job.gate.ended(call, error=error)

    def _own(self, session_id: str) -> None:
        if session_id != self.session_id:
            raise acp.RequestError.invalid_params({"sessionId": "there is no such session"})

    def _note(self, kind: str, text: str) -> None:
        self._notes += 1
        if self._notes <= MAX_NOTES:
            self._report(Output("note", f"{kind}: {clean_line(text, MAX_NOTE_CHARS)}"))
        elif self._notes == MAX_NOTES + 1:
            self._report(Output("note", "Further tool calls are not told here."))

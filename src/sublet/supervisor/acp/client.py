"""Our side of a conversation with an ACP agent: it is shown nothing and may do nothing that policy did not allow."""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Any

import acp
from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    AllowedOutcome,
    CreateTerminalResponse,
    CurrentModeUpdate,
    DeniedOutcome,
    EnvVariable,
    KillTerminalResponse,
    PermissionOption,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    RequestPermissionResponse,
    TerminalOutputResponse,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

from sublet.protocol.text import clean_line
from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.acp.call_words import call_line, short_title, subject
from sublet.supervisor.acp.file_requests import FileRequests
from sublet.supervisor.acp.terminals import Terminals
from sublet.supervisor.acp.tool_calls import TooLarge, choose, tool_call
from sublet.supervisor.job import Job
from sublet.supervisor.output import Capture
from sublet.supervisor.tool_words import MAX_LINE_CHARS

MAX_CALLS = 256
"""Tool calls of which it is remembered what was told."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call as it was told, or is to be told once it says what it is about."""

    title: str = ""
    kind: str = ""
    line: str = ""
    told: bool = False


class AgentClient:
    """What the agent reaches of us: the methods of ``acp.Client`` that it was offered, and no other.

    Args:
        job: the lease that it works for.
        asking: asks before each of its calls.
        said: takes what the agent says.
        left_mode: is called with the mode that it changed to by itself.
        files: answers what it wants of files; None where that was not offered.
        terminals: runs what it wants run.
        decided: tools of ours, on whose calls the gate decides when they come; permission for one is no question.
    """

    def __init__(
        self,
        job: Job,
        asking: ToolQuestions,
        said: Capture,
        left_mode: Callable[[str], None],
        files: FileRequests | None,
        terminals: Terminals,
        decided: Set[str] = frozenset(),
    ) -> None:
        self._decided = decided
        self._job = job
        self._asking = asking
        self._said = said
        self._left_mode = left_mode
        self._files = files
        self._terminals = terminals
        self._plan = ""
        self._calls: dict[str, _Call] = {}
        self._broken_off = self._spoke = False
        self.listening = False
        """Whether what it says now is said to us; what it tells of an earlier conversation is not."""
        self.session_id = ""
        """The only session that it may speak of."""

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        """Ask the gate, and answer by the option that says just what it decided."""
        self._own(session_id)
        self._does(tool_call)
        allowed = await self._may(tool_call)
        option = choose(options, allowed=allowed)
        if allowed and option is None:
            # It offers to be allowed for ever only, or not at all.
            self._asking.note("refused", f"{tool_call.title or tool_call.tool_call_id}: it can't be allowed just once")
            await self._asking.ended(tool_call.tool_call_id, "it can't be allowed just once")
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
                if self._broken_off and self._spoke:
                    self._said.feed(b"\n\n")
                self._broken_off, self._spoke = False, True
                self._said.feed(update.content.text.encode("utf-8", "replace"))
        elif isinstance(update, ToolCallStart):
            self._broken_off = True
            self._does(update)
            await self._ended(update)
        elif isinstance(update, ToolCallProgress):
            self._does(update)
            await self._ended(update)
        elif isinstance(update, CurrentModeUpdate):
            self._left_mode(update.current_mode_id)
        elif isinstance(update, AgentPlanUpdate):
            self._planned(update)
        elif isinstance(update, AgentThoughtChunk):
            self._broken_off = True

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        """Read a file of the lease: ``FileRequests.read``."""
        self._own(session_id)
        if self._files is None:
            raise acp.RequestError.method_not_found("fs/read_text_file")
        return await self._files.read(path, line, limit)

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        """Write a file of the lease: ``FileRequests.write``."""
        self._own(session_id)
        if self._files is None:
            raise acp.RequestError.method_not_found("fs/write_text_file")
        return await self._files.write(path, content)

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> CreateTerminalResponse:
        """Run a command in the sandbox: ``Terminals.create``."""
        self._own(session_id)
        variables = {one.name: one.value for one in env or []}
        terminal_id = await self._terminals.create(command, args or [], variables, cwd, output_byte_limit)
        return CreateTerminalResponse(terminal_id=terminal_id)

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> TerminalOutputResponse:
        """Return what a command printed."""
        self._own(session_id)
        return self._terminals.output(terminal_id)

    async def wait_for_terminal_exit(self, session_id: str, terminal_id: str, **_: Any) -> WaitForTerminalExitResponse:
        """Return how a command ended, once it has."""
        self._own(session_id)
        status = await self._terminals.wait(terminal_id)
        return WaitForTerminalExitResponse(exit_code=status.exit_code, signal=status.signal)

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> KillTerminalResponse:
        """End a command."""
        self._own(session_id)
        await self._terminals.kill(terminal_id)
        return KillTerminalResponse()

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> ReleaseTerminalResponse:
        """End a command and forget it."""
        self._own(session_id)
        await self._terminals.release(terminal_id)
        return ReleaseTerminalResponse()

    async def _may(self, update: ToolCallUpdate) -> bool:
        shown = update.title or update.tool_call_id
        try:
            call = tool_call(update, self._job.resources)
        except TooLarge:
            self._asking.note("refused", f"{shown}: its arguments are too large to decide on")
            return False
        # Asked twice, a call would use up two grants.
        return call.tool in self._decided or await self._asking.may(call, shown) is None

    def _does(self, update: ToolCallStart | ToolCallProgress | ToolCallUpdate) -> None:
        """Tell once what a call is about: its tool, and the command or file, which agents often tell after the tool."""
        call_id, resources = update.tool_call_id, self._job.resources
        call = self._calls.get(call_id, _Call())
        if not call.told:
            title = short_title(update.title, resources) if update.title else call.title
            kind = str(update.kind or "") or call.kind
            about = subject(update, resources)
            line = clean_line(call_line(title, kind, about), MAX_LINE_CHARS)
            # A bare name of a tool waits for what it is about, and for no longer than the call.
            told = bool(about) or " " in title or update.status in ("completed", "failed")
            call = _Call(title, kind, line, told)
            if told and title:
                self._asking.note("tool", line)
        if update.status == "failed":
            self._asking.note("failed", call.line or call.title)
        self._calls[call_id] = call
        if len(self._calls) > MAX_CALLS:
            del self._calls[next(iter(self._calls))]

    async def _ended(self, update: ToolCallStart | ToolCallProgress) -> None:
        if update.status == "completed":
            await self._asking.ended(update.tool_call_id, None)
        elif update.status == "failed":
            await self._asking.ended(update.tool_call_id, "the tool failed")

    def _planned(self, update: AgentPlanUpdate) -> None:
        """Tell how far it is with its plan, where that has changed."""
        done = sum(entry.status == "completed" for entry in update.entries)
        now = next((entry.content for entry in update.entries if entry.status == "in_progress"), "")
        plan = f"{done} of {len(update.entries)} done" + (f"; now: {now}" if now else "")
        if plan != self._plan:
            self._plan = plan
            self._asking.note("plan", plan)

    def _own(self, session_id: str) -> None:
        if session_id != self.session_id:
            raise acp.RequestError.invalid_params({"sessionId": "there is no such session"})

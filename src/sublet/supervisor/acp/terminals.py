"""Commands that an ACP agent has us run: in its own sandbox, under its limits, ended with it (DESIGN 4.9)."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import acp
from acp.schema import TerminalExitStatus, TerminalOutputResponse

from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.patterns import Pattern
from sublet.stop_time import within
from sublet.supervisor import tools
from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.acp.tool_calls import in_view
from sublet.supervisor.guarded_process import Ended, GuardedProcess
from sublet.supervisor.job import Job
from sublet.supervisor.program_run import DRAIN_SECONDS
from sublet.supervisor.tool_gate import ToolCall

MAX_TERMINALS: Final = 16
"""That were not released."""
MAX_OUTPUT_BYTES: Final = 256 << 10
"""Of each, the newest; the agent may ask for less."""
MAX_COMMAND_BYTES: Final = 64 << 10
"""Of a command with its arguments and variables."""
_INTERNAL: Final = -32603
_VARIABLE: Final = Pattern(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_READ_BYTES: Final = 65_536
_EXEC: Final = ("sh", "-c", 'exec "$@"', "sh")

Beside = Callable[[Sequence[str]], AbstractAsyncContextManager[GuardedProcess]]


@dataclass
class _Terminal:
    """One command, and the newest of what it printed."""

    call_id: str
    limit: int
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    process: GuardedProcess | None = None
    ended: Ended | None = None
    failure: str = ""
    kept: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def feed(self, data: bytes) -> None:
        self.kept += data
        if len(self.kept) > self.limit:
            self.truncated = True
            del self.kept[: len(self.kept) - self.limit]

    def output(self) -> str:
        start = 0
        while self.truncated and start < min(4, len(self.kept)) and self.kept[start] & 0xC0 == 0x80:
            start += 1  # the rest of a character whose beginning fell out
        return self.kept[start:].decode("utf-8", "replace")

    def status(self) -> TerminalExitStatus | None:
        if self.ended is None:
            return None
        if self.ended.how == "exit":
            return TerminalExitStatus(exit_code=self.ended.number)
        number = self.ended.number or signal.SIGKILL
        try:
            return TerminalExitStatus(signal=signal.Signals(number).name)
        except ValueError:
            return TerminalExitStatus(signal=str(number))


class Terminals:
    """The commands of one conversation. Made by ``opened``, which ends them.

    Args:
        job: whose lease; a command begins in one of its directories.
        asking: asks before each.
        beside: starts a program in the agent's sandbox.
        count: is told how many bytes were printed.
        group: runs what attends to them.
    """

    def __init__(
        self, job: Job, asking: ToolQuestions, beside: Beside, count: Callable[[int], None], group: asyncio.TaskGroup
    ) -> None:
        self._job = job
        self._asking = asking
        self._beside = beside
        self._count = count
        self._group = group
        self._numbers = itertools.count(1)
        self._all: dict[str, _Terminal] = {}

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, job: Job, asking: ToolQuestions, beside: Beside, count: Callable[[int], None]
    ) -> AsyncIterator[Terminals]:
        """Yield terminals, and end all that still run afterwards."""
        async with asyncio.TaskGroup() as group:
            made = cls(job, asking, beside, count, group)
            try:
                yield made
            finally:
                for terminal in made._all.values():
                    if terminal.process is not None:
                        terminal.process.stop()

    async def create(
        self, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str | None, limit: int | None
    ) -> str:
        """Start a command and return the id of its terminal.

        One without arguments is a line for the shell, as agents send them.

        Raises:
            acp.RequestError: it may not be run, or there are too many.
        """
        words = [command, *args, *(f"{name}={value}" for name, value in env.items())]
        if any("\0" in word for word in (*words, cwd or "")) or sum(map(len, words)) > MAX_COMMAND_BYTES:
            raise acp.RequestError.invalid_params({"command": "it is too long, or has a NUL character"})
        if not all(_VARIABLE.match(name) for name in env):
            raise acp.RequestError.invalid_params({"env": "that is no name of a variable"})
        place = in_view(cwd or ".", self._job.resources)
        arguments: dict[str, JsonValue] = {"command": command}
        if args:
            arguments["args"] = list(args)
        if env:
            arguments["env"] = dict(env)
        if place != self._job.resources[0].name:
            arguments["cwd"] = place  # a grant is for this directory and for no other
        terminal_id = f"terminal-{next(self._numbers)}"
        call = ToolCall(tools.SHELL_EXEC, arguments, terminal_id, (place,))
        if (refused := await self._asking.may(call, f"{call.tool} {' '.join((command, *args))}")) is not None:
            raise acp.RequestError(_INTERNAL, f"it is not allowed: {refused.reason}")
        reason = "it would begin outside of the lent directories" if place.startswith("/") else ""
        if len(self._all) >= MAX_TERMINALS:
            reason = f"there are {MAX_TERMINALS} terminals already; release some"
        if reason:
            await self._asking.ended(terminal_id, reason)
            raise acp.RequestError(_INTERNAL, reason)
        terminal = _Terminal(terminal_id, min(MAX_OUTPUT_BYTES, limit if limit is not None else MAX_OUTPUT_BYTES))
        self._all[terminal_id] = terminal
        self._group.create_task(self._attend(terminal, self._argv(command, args, env, self._directory(cwd))))
        await terminal.begun.wait()
        if terminal.failure:
            del self._all[terminal_id]
            raise acp.RequestError(_INTERNAL, terminal.failure)
        return terminal_id

    def output(self, terminal_id: str) -> TerminalOutputResponse:
        """Return the newest of what a command printed, and how it ended if it has."""
        terminal = self._get(terminal_id)
        return TerminalOutputResponse(
            output=terminal.output(), truncated=terminal.truncated, exit_status=terminal.status()
        )

    async def wait(self, terminal_id: str) -> TerminalExitStatus:
        """Return how a command ended, once it has."""
        terminal = self._get(terminal_id)
        await terminal.over.wait()
        return terminal.status() or TerminalExitStatus(signal=signal.SIGKILL.name)

    async def kill(self, terminal_id: str) -> None:
        """End a command and all it started; its output stays."""
        terminal = self._get(terminal_id)
        if terminal.process is not None:
            terminal.process.stop()
        await terminal.over.wait()

    async def release(self, terminal_id: str) -> None:
        """End a command and forget it."""
        await self.kill(terminal_id)
        self._all.pop(terminal_id, None)

    def _argv(self, command: str, args: Sequence[str], env: Mapping[str, str], cwd: str) -> list[str]:
        """Return the argv: directory and variables are set inside the sandbox, where they can do nothing else."""
        run = [command, *args] if args else ["sh", "-c", command]
        values = [f"{name}={value}" for name, value in env.items()]
        # A word before the command, so that none is taken for an option of env or, with a "=", for a variable.
        return ["sh", "-c", 'cd -- "$1" && shift && exec env -- "$@"', "sh", cwd, *values, *_EXEC, *run]

    def _directory(self, cwd: str | None) -> str:
        """Return the directory that was decided on, whatever ``cd`` makes of ``-``, of links and of ``CDPATH``."""
        return os.path.normpath(os.path.join(self._job.resources[0].path, cwd or "."))

    async def _attend(self, terminal: _Terminal, argv: Sequence[str]) -> None:
        """Run a command to its end."""
        try:
            async with self._beside(argv) as process, asyncio.TaskGroup() as group:
                terminal.process = process
                terminal.begun.set()
                drains = [
                    group.create_task(self._drain(stream, terminal)) for stream in (process.stdout, process.stderr)
                ]
                terminal.ended = await process.wait()
                await asyncio.wait(drains, timeout=within(DRAIN_SECONDS))
                for task in drains:
                    task.cancel()
        except OSError as error:
            terminal.failure = f"the command can't be started: {error.strerror}"
        except SubletError as error:
            terminal.failure = error.message
        finally:
            terminal.begun.set()
            terminal.over.set()
        status = terminal.status()
        code = status.exit_code if status is not None else None
        how = terminal.failure or (f"exit status {code}" if code is not None else "it was ended")
        await self._asking.ended(terminal.call_id, None if code == 0 else how)

    async def _drain(self, stream: asyncio.StreamReader, terminal: _Terminal) -> None:
        while data := await stream.read(_READ_BYTES):
            terminal.feed(data)
            self._count(len(data))

    def _get(self, terminal_id: str) -> _Terminal:
        if (found := self._all.get(terminal_id)) is None:
            raise acp.RequestError.invalid_params({"terminalId": "there is no such terminal"})
        return found

"""Makes the calls that a model asks for: read, checked, asked for at the gate, done, and told to model and journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import structlog

from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean_line
from sublet.supervisor.chat.arguments import BadArguments, read_arguments
from sublet.supervisor.chat.reply import RawCall
from sublet.supervisor.chat.tool import Arguments, Tool, ToolFailed, bounded
from sublet.supervisor.confined_runs import LimitMet
from sublet.supervisor.tool_gate import ToolCall, ToolGate

MAX_SHOWN_CHARS: Final = 160
MAX_BAD_CALLS: Final = 12
"""Calls in a row that can't even be read, after which a task is given up."""

log = structlog.get_logger(__name__)


class Calls:
    """The calls of one job.

    Args:
        tools: those that the model is offered.
        gate: asked before each.
        note: tells people what happens.
    """

    def __init__(self, tools: Sequence[Tool], gate: ToolGate, note: Callable[[str], None]) -> None:
        self._tools = {tool.wire_name: tool for tool in tools}
        self._names = {tool.name: tool for tool in tools}
        self._gate = gate
        self._note = note
        self.bad = 0
        """How many calls in a row could not be read."""

    async def make(self, raw: RawCall) -> str:
        """Make one call and return what the model is told of it.

        Raises:
            LimitMet: it was ended by a limit of the agent's, and so is the job.
        """
        try:
            tool = self._tool(raw.name)
            arguments = read_arguments(raw.arguments)
            # In a thread: how long it takes, within bounds, is for the model to decide.
            await asyncio.to_thread(tool.check, arguments)
        except BadArguments as error:
            self.bad += 1
            return f"Error: {error}"
        self.bad = 0
        call = ToolCall(tool.name, arguments, raw.id, tool.paths(arguments), tool.sifted)
        shown = self._shown(tool, arguments)
        verdict = await self._gate.ask(call)
        if verdict.hidden:
            self._note(f"{shown}: failed: {verdict.reason}")
            return f"Error: {verdict.reason}"
        if not verdict.allowed:
            self._note(f"{shown}: refused: {clean_line(verdict.reason, MAX_SHOWN_CHARS)}")
            hint = f" {verdict.hint}" if verdict.hint else ""
            return f"Refused by policy, and not done: {verdict.reason}.{hint}"
        return await self._do(tool, call, shown)

    async def _do(self, tool: Tool, call: ToolCall, shown: str) -> str:
        try:
            result = await tool.run(call.arguments)
        except ToolFailed as error:
            await self._gate.ended(call, error=str(error))
            self._note(f"{shown}: failed: {clean_line(str(error), MAX_SHOWN_CHARS)}")
            return f"Error: {error}"
        except LimitMet as error:
            await self._gate.ended(call, error=f"it {error}")
            raise
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self._gate.ended(call, error="it was ended with the task")
            raise
        except Exception:
            log.exception("a tool broke", tool=tool.name)
            await self._gate.ended(call, error="an internal error")
            raise
        facts: dict[str, JsonValue] = {"chars": len(result.text), **result.facts}
        await self._gate.ended(call, result=facts)
        self._note(shown)
        return bounded(result.text)

    def _tool(self, name: str) -> Tool:
        """Return the tool that a model means.

        Raises:
            BadArguments: it is offered none of that name.
        """
        tool = self._tools.get(name) or self._names.get(name)
        if tool is None:
            raise BadArguments(f"there is no tool {clean_line(name, 80)!r}; there are: {', '.join(self._tools)}")
        return tool

    @staticmethod
    def _shown(tool: Tool, arguments: Arguments) -> str:
        about = clean_line(tool.shown(arguments).partition("\n")[0], MAX_SHOWN_CHARS)
        return f"{tool.name} {about}".rstrip()

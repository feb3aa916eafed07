"""The tools of one job as an MCP server: listed, decided on by the gate at each call, and made. Loads the SDK."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any, Final

import anyio
import mcp.types as t
import structlog
from mcp.server import NotificationOptions, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from sublet.policy.guardrail.schema import CheckedSchema
from sublet.protocol.bounded_json import check_json
from sublet.protocol.errors import SubletError
from sublet.protocol.lines import LineCutter, LineTooLong
from sublet.protocol.text import clean_line
from sublet.supervisor.acp.asking import ToolQuestions
from sublet.supervisor.job import Job
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tool_server.line_server import Read, Stream, Write, serve_lines
from sublet.supervisor.tool_server.names import SERVER, NamedOffer
from sublet.supervisor.tools import ToolSource
from sublet.turns import Turns

MAX_LINE_BYTES: Final = 1 << 20
MAX_VALUES: Final = 20_000
"""JSON values of one message."""
MAX_CALLS: Final = 8
"""Calls of one job that may be under way at once."""
CHUNK: Final = 16_384

log = structlog.get_logger(__name__)

Context = ServerRequestContext[None]


class ServedTools:
    """Serves connections of one job.

    Args:
        offers: the tools, by the names that the agent sees.
        source: makes the calls.
        job: whose calls they are.
        asking: asks the gate, and tells people.
        version: ours, as the agent is told.
        agent_id: whose calls they are.
    """

    def __init__(
        self,
        offers: Mapping[str, NamedOffer],
        source: ToolSource,
        job: Job,
        asking: ToolQuestions,
        version: str,
        agent_id: str,
    ) -> None:
        self._offers = offers
        self._schemas = {name: CheckedSchema(one.offer.parameters) for name, one in offers.items()}
        self._source = source
        self._job = job
        self._asking = asking
        self._agent_id = agent_id
        self._ids = itertools.count(1)
        self._calls = 0
        self._server: Server[None] = Server(
            SERVER, version=version, title="Sublet", on_list_tools=self._list, on_call_tool=self._call
        )

    async def serve(self, stream: Stream) -> None:
        """Serve one connection until it ends; a line that is no message ends it."""
        options = self._server.create_initialization_options(NotificationOptions())

        async def serve(read: Read, write: Write) -> None:
            await serve_dual_era_loop(self._server, read, write, lifespan_state=None, init_options=options)

        await serve_lines(stream, self._messages(stream), serve)

    async def _messages(self, stream: Stream) -> AsyncGenerator[SessionMessage, None]:
        async for line in _lines(stream):
            try:
                check_json(line, values=MAX_VALUES)
                message = jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                log.warning("an agent's tool connection sent what is no message", agent=self._agent_id)
                return
            yield SessionMessage(message)

    async def _list(self, _ctx: Context, _params: t.PaginatedRequestParams | None) -> t.ListToolsResult:
        return t.ListToolsResult(
            tools=[
                t.Tool(name=name, description=one.offer.description, input_schema=dict(one.offer.parameters))
                for name, one in self._offers.items()
            ]
        )

    async def _call(self, _ctx: Context, params: t.CallToolRequestParams) -> t.CallToolResult:
        if self._calls >= MAX_CALLS:
            return _said(f"{MAX_CALLS} calls are under way at once; wait for one to end", failed=True)
        self._calls += 1
        try:
            return await self._made(params.name, params.arguments or {})
        except SubletError as error:
            return _said(str(error), failed=True)
        except Exception:
            log.exception("a tool failed", tool=clean_line(params.name, 64))
            return _said("the daemon failed on this call; its log says why", failed=True)
        finally:
            self._calls -= 1

    async def _made(self, name: str, arguments: dict[str, Any]) -> t.CallToolResult:
        named = self._offers.get(name)
        if named is None:
            return _said(f"there is no tool {clean_line(name, 64)!r}", failed=True)
        # In a thread: how long it takes, within bounds, is for the agent to decide.
        if issue := next(iter(await asyncio.to_thread(self._schemas[name].issues, arguments)), None):
            return _said(f"wrong arguments: {issue.line()}", failed=True)
        call = ToolCall(named.offer.tool, arguments, f"sublet:{next(self._ids)}")
        refused = await self._asking.may(call, named.offer.tool)
        if refused is not None:
            if refused.hidden:
                return _said(f"there is no tool {clean_line(name, 64)!r}", failed=True)
            return _said(f"Refused by policy, and not done: {refused.reason}", failed=True)
        error: str | None = "it was broken off"
        try:
            answer = await self._source.call(call, self._job, self._agent_id)
            error = answer.error
            return _said(answer.text, failed=error is not None)
        except SubletError as failure:
            error = str(failure)
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._asking.ended(call.call_id, error)


def _said(text: str, *, failed: bool) -> t.CallToolResult:
    return t.CallToolResult(content=[t.TextContent(text=text)], is_error=failed)


async def _lines(stream: Stream) -> AsyncIterator[bytes]:
    """Return whole lines until the end, or until one is too long."""
    lines, turns = LineCutter(MAX_LINE_BYTES), Turns()
    try:
        while data := await stream.receive(CHUNK):
            for line in lines.feed(data):
                await turns.take()
                yield line
    except LineTooLong:
        log.warning("an agent's tool connection sent a line that is too long", most=MAX_LINE_BYTES)

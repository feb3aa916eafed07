"""One MCP server whose tools a model may call: started, listed and called, whatever it does (notes of the SDK apply).

It lives in a task of its own, so that its end, or its errors, are nobody else's. The SDK is loaded only here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog

from sublet import deadlines
from sublet.protocol.canonical import JsonValue
from sublet.protocol.text import clean_line
from sublet.supervisor.chat.tool import ToolFailed
from sublet.supervisor.confined_runs import ConfinedRuns
from sublet.supervisor.mcp_streams import MAX_LINE_BYTES, session_streams
from sublet.supervisor.model_config import McpServerConfig

if TYPE_CHECKING:
    import mcp.types
    from mcp import Client

START_SECONDS: Final = 30.0
CALL_SECONDS: Final = 600.0
MAX_TOOLS: Final = 128
MAX_PAGES: Final = 16

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool as its server describes it."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]


@dataclass(slots=True)
class _Request:
    tool: str
    arguments: dict[str, Any]
    answer: asyncio.Future[mcp.types.CallToolResult]


class McpServer:
    """One server. ``serve`` runs it in a task of its own; ``ready`` tells when its tools are known, or that it failed.

    Args:
        name: as the configuration names it.
        config: program or URL.
        runs: starts the program, confined.
        environ: the daemon's environment.
    """

    def __init__(self, name: str, config: McpServerConfig, runs: ConfinedRuns, environ: Mapping[str, str]) -> None:
        self.name = name
        self.ready = asyncio.Event()
        self.tools: list[ServerTool] = []
        self.failure = ""
        self._config = config
        self._runs = runs
        self._environ = environ
        self._send, self._requests = anyio.create_memory_object_stream[_Request](1)

    async def serve(self) -> None:
        """Connect and answer calls until cancelled, or until the server ends. Nothing but cancelling is raised."""
        try:
            async with AsyncExitStack() as opened:
                # No cancel scope: those that are entered here have to outlast it.
                async with deadlines.timeout(START_SECONDS):
                    client = await self._connect(opened)
                    self.tools = await _listed(client)
                self.ready.set()
                async with anyio.create_task_group() as group:
                    async for request in self._requests:
                        group.start_soon(_call, client, request)
        except Exception as error:
            # Whatever a server, or the SDK on its account, raises ends this server and nothing else.
            self.failure = f"MCP server {self.name} {_reason(error)}"
            log.warning("an MCP server has failed", server=self.name, reason=_reason(error))
        finally:
            self.failure = self.failure or f"MCP server {self.name} has ended"
            self._requests.close()
            self._send.close()
            self.ready.set()

    async def call(self, tool: str, arguments: dict[str, Any]) -> mcp.types.CallToolResult:
        """Return what a tool answers.

        Raises:
            ToolFailed: the server is gone, or does not answer in time.
        """
        answer: asyncio.Future[mcp.types.CallToolResult] = asyncio.get_running_loop().create_future()
        try:
            async with deadlines.timeout(CALL_SECONDS):
                await self._send.send(_Request(tool, arguments, answer))
                while not answer.done():
                    await asyncio.wait([answer], timeout=1.0)
                    if not self._requests_open and not answer.done():
                        raise ToolFailed(self.failure)
                return await answer
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ToolFailed(self.failure) from None
        except TimeoutError:
            raise ToolFailed(f"it has not answered in {CALL_SECONDS:.0f} s") from None
        finally:
            answer.cancel()

    @property
    def _requests_open(self) -> bool:
        return self._requests.statistics().open_receive_streams > 0

    async def _connect(self, opened: AsyncExitStack) -> Client:
        from mcp import Client

        config = self._config
        if config.command is not None:
            transport: Any = self._program([config.command, *config.args], config.env)
        else:
            transport = self._remote(opened)
        return await opened.enter_async_context(Client(transport, mode="auto", cache=None))

    def _remote(self, opened: AsyncExitStack) -> Any:
        from mcp.client.streamable_http import streamable_http_client

        from sublet.supervisor.chat.mcp_http import bounded_client  # loaded by whoever uses one

        config = self._config
        headers = {}
        if config.token_env is not None:
            headers["Authorization"] = f"Bearer {self._environ.get(config.token_env, '')}"
        client = bounded_client(headers, CALL_SECONDS)
        opened.push_async_callback(client.aclose)
        return streamable_http_client(config.url or "", http_client=client, max_sse_event_size=MAX_LINE_BYTES)

    @asynccontextmanager
    async def _program(self, argv: list[str], names: tuple[str, ...]) -> AsyncIterator[tuple[Any, Any]]:
        """Run a program and speak with it by lines on its standard input and output."""
        process = await self._runs.start(argv, names, None)
        try:
            with self._runs.owned(process):
                async with session_streams(process) as streams:
                    yield streams
        finally:
            with anyio.CancelScope(shield=True):
                await process.close()


async def _call(client: Client, request: _Request) -> None:
    try:
        result = await client.call_tool(request.tool, request.arguments, read_timeout_seconds=CALL_SECONDS)
    except Exception as error:
        if not request.answer.done():
            request.answer.set_exception(ToolFailed(f"the server refused the call: {clean_line(str(error), 300)}"))
    else:
        if not request.answer.done():
            request.answer.set_result(result)


async def _listed(client: Client) -> list[ServerTool]:
    found: list[ServerTool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += [ServerTool(tool.name, tool.description or "", tool.input_schema) for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None or len(found) >= MAX_TOOLS:
            break
    return found[:MAX_TOOLS]


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"did not answer within {START_SECONDS:.0f} s"
    return f"failed: {clean_line(str(error) or type(error).__name__, 300)}"


def shown_result(result: mcp.types.CallToolResult, limit: int) -> str:
    """Return what a tool answered as text; what is no text is named, not shown."""
    parts: list[str] = []
    for block in result.content:
        text = getattr(block, "text", None)
        if isinstance(text, str):
            parts.append(text)
        else:
            parts.append(f"[{block.type}, not shown]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts)[: limit * 4]

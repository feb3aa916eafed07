"""The MCP servers of a Computer: programs of its owner, started by what the owner has typed and by nothing else.

They run as the owner, with the owner's environment and without a sandbox, as they do below any other MCP host. One that
ends is started again, after a pause that grows; what it was asked by then has failed and is not asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import structlog

from sublet import deadlines
from sublet.protocol.text import clean_line
from sublet.supervisor.guarded_process import Ended, GuardedProcess
from sublet.supervisor.mcp_streams import session_streams

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, ListResourcesResult, Resource, Tool

START_SECONDS: Final = 30.0
LIST_SECONDS: Final = 20.0
LEAVE_SECONDS: Final = 1.0
"""How long a server may take to end by itself, once its standard input has ended."""
END_SECONDS: Final = 2.0
MAX_TOOLS: Final = 256
"""Of one server."""
MAX_PAGES: Final = 16
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 60.0
STEADY_SECONDS: Final = 120.0
"""After which a server that ends counts as one that ends for the first time."""
MAX_SAID_CHARS: Final = 300
_LISTS: Final = frozenset({"notifications/tools/list_changed", "notifications/resources/list_changed"})

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """How a server is started.

    Args:
        name: as its owner calls it.
        bundle_id: as the office knows it.
        argv: program and arguments.
        env: its environment.
        cwd: where it runs.
    """

    name: str
    bundle_id: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path


class ServerFailed(Exception):
    """A server is away, or has refused; the text is a sentence."""


class ToolServer:
    """One MCP server.

    Args:
        command: how it is started.
        changed: is told when its tools or resources may have changed.
    """

    def __init__(self, command: ServerCommand, changed: Callable[[], None]) -> None:
        self.command = command
        self.tools: Sequence[Tool] = ()
        self.failure = ""
        """Why it is away."""
        self.started = anyio.Event()
        """Set once it has told its tools, or could not be started the first time."""
        self._changed = changed
        self._client: Client | None = None
        self._relist = anyio.Event()

    async def serve(self) -> None:
        """Run it until cancelled; returns where it can't be started the first time."""
        pause = FIRST_PAUSE
        while True:
            began = anyio.current_time()
            try:
                await self._once()
            except Exception as error:
                # Whatever a server, or the SDK on its account, raises ends this server and no other.
                self.failure = f"MCP server {self.command.name} {_reason(error)}"
            finally:
                self._client, self.tools = None, ()
            log.warning("an MCP server has ended", server=self.command.name, reason=self.failure)
            if not self.started.is_set():
                self.started.set()
                return
            self._changed()
            if anyio.current_time() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def call(self, tool: str, arguments: Mapping[str, Any], seconds: float) -> CallToolResult:
        """Return what a tool answers; cancelling tells the server.

        Raises:
            ServerFailed: the server is away, or refuses.
        """
        client = self._present()
        try:
            return await client.call_tool(tool, dict(arguments), read_timeout_seconds=seconds)
        except Exception as error:
            raise ServerFailed(f"{self.command.name} has not done it: {_words(error)}") from None

    async def resources(self, cursor: str | None) -> ListResourcesResult | None:
        """Return a page of its resources; None where it has none to offer.

        Raises:
            ServerFailed: the server is away, or refuses.
        """
        client = self._present()
        if client.server_capabilities.resources is None:
            return None
        try:
            async with deadlines.timeout(LIST_SECONDS):
                return await client.list_resources(cursor=cursor)
        except Exception as error:
            raise ServerFailed(f"{self.command.name} has not listed its resources: {_words(error)}") from None

    async def texts(self, resource: Resource) -> list[str]:
        """Return the texts of a resource; none where it can't be read."""
        client = self._present()
        try:
            async with deadlines.timeout(LIST_SECONDS):
                read = await client.read_resource(str(resource.uri))
        except Exception:
            return []
        texts = [getattr(one, "text", None) for one in read.contents]
        return [text for text in texts if isinstance(text, str) and text]

    def _present(self) -> Client:
        if self._client is None:
            raise ServerFailed(self.failure or f"MCP server {self.command.name} is starting")
        return self._client

    async def _once(self) -> None:
        from mcp import Client

        command = self.command
        process = await GuardedProcess.start(command.argv, command.env, command.cwd, None)
        try:
            async with AsyncExitStack() as opened:
                # No cancel scope: those that are entered here have to outlast it.
                async with deadlines.timeout(START_SECONDS):
                    streams: Any = session_streams(process, self._said, process.stop)
                    made = Client(streams, mode="auto", cache=None, message_handler=self._heard)
                    client = await opened.enter_async_context(made)
                    tools = await _listed(client)
                self._client, self.tools, self.failure = client, tools, ""
                self.started.set()
                self._changed()
                async with anyio.create_task_group() as group:
                    group.start_soon(self._list_again, client)
                    ended = await process.wait()
                    group.cancel_scope.cancel()
                raise ServerFailed(_how(ended))
        finally:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(LEAVE_SECONDS + END_SECONDS):
                    await process.leave(LEAVE_SECONDS)
                    await process.close()
                process.stop()

    async def _list_again(self, client: Client) -> None:
        while True:
            await self._relist.wait()
            self._relist = anyio.Event()
            try:
                self.tools = await _listed(client)
            except Exception as error:
                log.warning("an MCP server has not listed its tools", server=self.command.name, reason=_words(error))
            self._changed()

    async def _heard(self, message: Any) -> None:
        # Nothing is asked of the server here: its answers could not come before this returns.
        if getattr(message, "method", "") in _LISTS:
            self._relist.set()

    def _said(self, words: bytes) -> None:
        log.info("an MCP server says", server=self.command.name, said=clean_line(words.decode("utf-8", "replace"), 300))


async def _listed(client: Client) -> list[Tool]:
    found: list[Tool] = []
    cursor: str | None = None
    async with deadlines.timeout(LIST_SECONDS):
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += page.tools
            cursor = page.next_cursor
            if cursor is None or len(found) >= MAX_TOOLS:
                break
    return found[:MAX_TOOLS]


def _how(ended: Ended) -> str:
    if ended.how == "start":
        return f"can't be started: {clean_line(ended.reason, 200)}"
    return f"has ended ({ended.how} {ended.number})"


def _reason(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ServerFailed):
        return str(error)
    if isinstance(error, TimeoutError):
        return f"did not answer within {START_SECONDS:.0f} s"
    return f"failed: {_words(error)}"


def _words(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return clean_line(str(error) or type(error).__name__, MAX_SAID_CHARS)

"""The real MCP face over a fake daemon, and the ways to reach it: raw lines, the SDK client, the relay's process."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, cast

import anyio
from mcp import StdioServerParameters

from sublet.daemon.api.call_api import AskedCall, Became, Begun, CallApi, OpenQuestion
from sublet.daemon.config.paths import Home
from sublet.mcp_server import host, relay
from sublet.mcp_server.context import McpContext
from sublet.policy.decision import Subject
from sublet.tasks import Services
from support.answering import AnsweringTable
from support.fake_daemon_api import FakeDaemonApi
from support.fake_rooms import FakeRooms

SCRIPT = [str(Path(sys.executable).with_name("sublet")), "mcp"]
BARE = [sys.executable, "-I", "-S", relay.__file__]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class FreeCalls:
    """A ``CallApi`` that lets every call pass, and tells nobody."""

    async def question(self, call: AskedCall) -> OpenQuestion | None:
        """Nobody has to be asked."""
        return None

    async def decided(self, question_id: str, seconds: float) -> Became:
        """Nothing is ever asked."""
        raise NotImplementedError

    async def withdraw(self, question_id: str, *, denied_by: str | None = None) -> None:
        """Nothing is ever asked."""

    def hides(self, caller: Subject, tool: str) -> bool:
        """``CallApi.hides``."""
        return False

    async def begin(self, call: AskedCall, unknown: str) -> Begun:
        """It is allowed."""
        return Begun()

    async def ended(self, begun: Begun, error: str | None) -> None:
        """Nobody keeps it."""


def face_context(
    api: FakeDaemonApi,
    home: Home,
    calls: CallApi | None = None,
    page: Callable[[], str | None] = lambda: None,
    talk: FakeRooms | None = None,
) -> McpContext:
    """Return what the MCP face needs of a composition root."""
    return McpContext(
        called_by=AnsweringTable(api, talk or FakeRooms()).called_by,
        calls=calls or FreeCalls(),
        identify=lambda pid: None,
        version="0.0.1",
        runtime_dir=Path(home.runtime_dir),
        services=Services(),
        web_page=page,
    )


@asynccontextmanager
async def served(
    api: FakeDaemonApi,
    home: Home,
    calls: CallApi | None = None,
    page: Callable[[], str | None] = lambda: None,
    talk: FakeRooms | None = None,
) -> AsyncIterator[host.McpFace]:
    """Serve ``api`` at ``home`` while the block runs."""
    home.make()
    face = host.McpFace(face_context(api, home, calls, page, talk))
    await face.start()
    async with anyio.create_task_group() as group:
        group.start_soon(face.serve)
        yield face
        group.cancel_scope.cancel()


def environment(home: Home) -> dict[str, str]:
    """Return the environment of a relay."""
    return {**os.environ, "SUBLET_HOME": home.root}


def server_of(home: Home, command: Sequence[str] = SCRIPT) -> StdioServerParameters:
    """Return what an MCP client starts."""
    return StdioServerParameters(command=command[0], args=list(command[1:]), env=environment(home))


class RawHost:
    """A host that writes lines and reads lines, to do what no client library would."""

    def __init__(self, process: anyio.abc.Process, errors: IO[bytes]) -> None:
        self.process = process
        self._errors = errors
        self.pid = process.pid
        self._buffer = b""

    async def send(self, *messages: object) -> None:
        """Send each message as a line; bytes are sent as they are."""
        assert self.process.stdin is not None
        for message in messages:
            line = message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"
            await self.process.stdin.send(line)

    async def receive(self) -> dict[str, Any]:
        """Return the next message."""
        assert self.process.stdout is not None
        while b"\n" not in self._buffer:
            self._buffer += await self.process.stdout.receive()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return cast(dict[str, Any], json.loads(line))

    async def answer(self, request_id: object) -> dict[str, Any]:
        """Return the answer to a request; what comes before it is dropped."""
        while True:
            message = await self.receive()
            if message.get("id") == request_id and "method" not in message:
                return message

    def errors(self) -> str:
        """Return what it wrote to stderr until now."""
        self._errors.seek(0)
        return self._errors.read().decode()

    async def hello(self) -> dict[str, Any]:
        """Do the 2025 handshake."""
        await self.send(INITIALIZE)
        answer = await self.answer(1)
        await self.send(INITIALIZED)
        return answer

    async def call(self, request_id: object, tool: str, **arguments: object) -> dict[str, Any]:
        """Call a tool and return the answer."""
        await self.send(call(request_id, tool, **arguments))
        return await self.answer(request_id)


def call(request_id: object, tool: str, **arguments: object) -> dict[str, object]:
    """Return a tool call as a message."""
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


@asynccontextmanager
async def raw_host(home: Home, command: Sequence[str] = SCRIPT) -> AsyncIterator[RawHost]:
    """Start a relay and talk to it in lines; it is killed at the end if it is still there."""
    with tempfile.TemporaryFile() as errors:
        process = await anyio.open_process(command, env=environment(home), stderr=errors)
        try:
            yield RawHost(process, errors)
        finally:
            with anyio.CancelScope(shield=True):
                if process.returncode is None:
                    process.kill()
                await process.wait()
                await process.aclose()

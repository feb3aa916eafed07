"""A server that stops lets requests under way end, for a time, and waits for nothing else."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketStream
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.http_server import QuietServer, server_config

pytestmark = pytest.mark.anyio

DRAIN_SECONDS = 60
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Served:
    """A server on a socket, whose answer waits until it is let go."""

    def __init__(self, base: Path, drain_seconds: int) -> None:
        self.asked, self.let_go, self.cut = anyio.Event(), anyio.Event(), anyio.Event()
        self.path = str(base / "s")
        self._drain_seconds = drain_seconds
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(self.path)
        self._listening.listen()

    async def _answer(self, _: Request) -> PlainTextResponse:
        self.asked.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cut.set()
            raise
        return PlainTextResponse("done")

    async def serve(self) -> None:
        """Serve until cancelled."""
        config = server_config(
            Starlette(routes=[Route("/", self._answer)]),
            DeadlineProtocol,
            connections=4,
            head_bytes=4096,
            drain_seconds=self._drain_seconds,
            date=False,
        )
        await QuietServer(config).serve_until_cancelled(self._listening, lambda: None)

    async def asking(self) -> SocketStream:
        """Connect and ask."""
        stream = await anyio.connect_unix(self.path)
        await stream.send(REQUEST)
        await self.asked.wait()
        return stream


async def test_a_server_without_requests_stops_without_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served = Served(tmp_path, DRAIN_SECONDS)
    async with anyio.create_task_group() as group:
        group.start_soon(served.serve)
        await anyio.wait_all_tasks_blocked()

        async def sleep(seconds: float) -> None:
            raise AssertionError(f"it waits for {seconds} s")

        monkeypatch.setattr(asyncio, "sleep", sleep)
        group.cancel_scope.cancel()


async def test_a_request_under_way_is_answered_before_the_server_ends(tmp_path: Path) -> None:
    served = Served(tmp_path, DRAIN_SECONDS)
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def serve() -> None:
            with scope:
                await served.serve()

        group.start_soon(serve)
        async with await served.asking() as stream:
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            served.let_go.set()
            received = b"".join([piece async for piece in stream])
    assert received.startswith(b"HTTP/1.1 200 ")
    assert received.endswith(b"done")
    assert not served.cut.is_set()


async def test_a_request_that_does_not_end_is_cut_off(tmp_path: Path) -> None:
    served = Served(tmp_path, 0)
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def serve() -> None:
            with scope:
                await served.serve()

        group.start_soon(serve)
        async with await served.asking():
            scope.cancel()
            await served.cut.wait()

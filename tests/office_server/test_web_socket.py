"""What is no whole message is bounded too: pings, parts, and what has come at once."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.frames import Frame, Opcode

from sublet.office_server import web_socket as module
from sublet.office_server.web_socket import MAX_QUEUED, PIECE_BYTES, growing_web_socket

pytestmark = pytest.mark.anyio

HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


class Wire(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()
        self.ended = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.ended

    def close(self) -> None:
        self.ended = True

    def abort(self) -> None:
        self.ended = True

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return


def frame(opcode: Opcode, data: bytes, *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Any, Wire]]:
    """Yield a WebSocket after its handshake, whose application reads nothing by itself."""
    done = anyio.Event()

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        done.set()
        await anyio.sleep_forever()

    config = uvicorn.Config(application, lifespan="off", log_config=None, ws_per_message_deflate=False)
    config.load()
    wire, one = Wire(), growing_web_socket()(config, ServerState(), {})
    one.connection_made(wire)
    one.data_received(HANDSHAKE)
    with anyio.fail_after(10):
        await done.wait()
    wire.written.clear()
    try:
        yield one, wire
    finally:
        one.stop_keepalive()
        for task in list(one.tasks):
            task.cancel()
            await asyncio.wait([task])


async def test_answers_to_pings_that_are_not_read_do_not_wait() -> None:
    async with connected() as (one, wire):
        one.data_received(frame(Opcode.PING, b"x"))
        answered = bytes(wire.written)
        assert answered.endswith(b"x")
        one.pause_writing()
        one.data_received(frame(Opcode.PING, b"y"))
        assert wire.written == answered
        one.resume_writing()
        one.data_received(frame(Opcode.PING, b"z"))
        assert wire.written.endswith(b"z")


@pytest.mark.parametrize("opcode", [Opcode.PING, Opcode.PONG, Opcode.CONT])
async def test_frames_that_are_no_message_end_their_connection_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, opcode: Opcode
) -> None:
    monkeypatch.setattr(module, "FRAMES_AT_ONCE", 20.0)
    monkeypatch.setattr(module, "FRAMES_PER_SECOND", 0.0)
    async with connected() as (one, wire):
        if opcode is Opcode.CONT:
            one.data_received(frame(Opcode.TEXT, b"", fin=False))
        for _ in range(20):
            one.data_received(frame(opcode, b"", fin=opcode is not Opcode.CONT))
        assert not wire.ended
        one.data_received(frame(opcode, b"", fin=opcode is not Opcode.CONT))
        assert wire.ended


async def test_a_message_has_so_many_parts_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PARTS", 3)
    async with connected() as (one, wire):
        one.data_received(frame(Opcode.TEXT, b"a", fin=False))
        for _ in range(2):
            one.data_received(frame(Opcode.CONT, b"b", fin=False))
        assert not wire.ended
        one.data_received(frame(Opcode.CONT, b"c", fin=False))
        assert wire.ended


async def test_what_comes_at_once_is_parsed_as_it_is_handled() -> None:
    async with connected() as (one, wire):
        sent = [str(number) for number in range(4_000)]
        one.data_received(b"".join(frame(Opcode.TEXT, text.encode()) for text in sent))
        assert one.queue.qsize() <= MAX_QUEUED + PIECE_BYTES // 6
        assert [(await one.receive())["text"] for _ in sent] == sent
        assert not wire.ended


async def test_of_a_connection_that_is_lost_nothing_is_kept_that_had_come() -> None:
    async with connected() as (protocol, _):
        protocol.queue = asyncio.Queue()
        protocol.data_received(frame(Opcode.TEXT, b"x" * 9_000)[:8_000])
        assert len(protocol.conn.reader.buffer) > 7_000
        protocol._unread += b"x" * 1_000
        protocol.connection_lost(None)
        assert protocol._unread == protocol.conn.reader.buffer == b""


async def test_a_line_that_outlives_its_web_socket_keeps_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected() as (protocol, wire):
        grow, abort = protocol.app_state[module.GROW_KEY], protocol.app_state[module.ABORT_KEY]
        monkeypatch.setattr(module, "MAX_FRAME_BYTES", 12_345)
        grow()
        assert 12_345 in (getattr(protocol.conn, name, 0) for name in ("max_message_size", "max_size"))
        abort()
        assert wire.ended
        for held in (grow, abort):
            assert held.args[0]() is protocol
            assert isinstance(held.args[0], weakref.ref)

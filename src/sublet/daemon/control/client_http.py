"""HTTP/1.1 over the control socket, as little of it as the client needs.

A general HTTP client takes 100 ms of processor time to import, more than everything else that ``sublet ls`` does, and
knows proxies, cookies, pools and redirects that a Unix socket has no use for.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import urlencode

import h11

from sublet import deadlines
from sublet.protocol.lines import LineCutter, LineTooLong

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
"""Longer than any answer may take, long polls included, and than the pause between two heartbeats of a stream."""
MAX_ANSWER_BYTES = 64 << 20
CHUNK = 65536
HOST = "sublet"
"""What we send as Host. A browser that was lured to the socket by some proxy would send another."""

Query = Mapping[str, str | float | bool | None]


class Fault(Enum):
    """What kept an answer from coming."""

    ABSENT = "nobody listens"
    SILENT = "no answer in time"
    BROKEN = "the connection broke"


class TransportFailed(Exception):
    """There is no answer, or no end of it."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.value)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer whose head has arrived."""

    status: int
    chunks: AsyncIterator[bytes]

    async def body(self) -> bytes:
        """Return the whole body.

        Raises:
            TransportFailed: it does not come to its end, or is larger than ``MAX_ANSWER_BYTES``.
        """
        whole = bytearray()
        async for chunk in self.chunks:
            whole += chunk
            if len(whole) > MAX_ANSWER_BYTES:
                raise TransportFailed(Fault.BROKEN)
        return bytes(whole)

    async def lines(self) -> AsyncIterator[str]:
        """Yield the body's lines as they come, without their ends and without blank ones.

        Raises:
            TransportFailed: the body breaks off, or a line is larger than ``MAX_ANSWER_BYTES``.
        """
        lines = LineCutter(MAX_ANSWER_BYTES)
        try:
            async for chunk in self.chunks:
                for line in lines.feed(chunk):
                    yield line.decode("utf-8", "replace").removesuffix("\r")
        except LineTooLong:
            raise TransportFailed(Fault.BROKEN) from None


@contextlib.asynccontextmanager
async def exchange(
    socket_path: str, method: str, path: str, query: Query | None = None, body: bytes | None = None
) -> AsyncIterator[HttpAnswer]:
    """Send one request on a connection of its own and yield the answer; leaving the block closes the connection.

    Args:
        socket_path: the control socket.
        method: HTTP method.
        path: absolute path, whose segments are plain already.
        query: parameters; those that are None are left out.
        body: JSON to send, or None for no body.

    Raises:
        TransportFailed: no answer comes.
    """
    try:
        async with deadlines.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_unix_connection(socket_path)
    except TimeoutError:
        raise TransportFailed(Fault.SILENT) from None
    except OSError:
        raise TransportFailed(Fault.ABSENT) from None
    try:
        protocol = h11.Connection(our_role=h11.CLIENT)
        writer.write(_request(protocol, method, _target(path, query or {}), body))
        with contextlib.suppress(OSError):  # a server that refuses early has answered all the same
            async with deadlines.timeout(READ_SECONDS):
                await writer.drain()
        head = await _next(protocol, reader)
        while isinstance(head, h11.InformationalResponse):
            head = await _next(protocol, reader)
        if not isinstance(head, h11.Response):
            raise TransportFailed(Fault.BROKEN)
        yield HttpAnswer(head.status_code, _chunks(protocol, reader))
    finally:
        writer.transport.abort()


def _target(path: str, query: Query) -> str:
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }
    return f"{path}?{urlencode(given)}" if given else path


def _request(protocol: h11.Connection, method: str, target: str, body: bytes | None) -> bytes:
    headers = [("Host", HOST), ("Connection", "close")]
    if body is not None:
        headers += [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    wire = protocol.send(h11.Request(method=method, target=target, headers=headers)) or b""
    if body is not None:
        wire += protocol.send(h11.Data(data=body)) or b""
    return wire + (protocol.send(h11.EndOfMessage()) or b"")


async def _chunks(protocol: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while not isinstance(event := await _next(protocol, reader), h11.EndOfMessage):
        if not isinstance(event, h11.Data):
            raise TransportFailed(Fault.BROKEN)
        yield bytes(event.data)


async def _next(protocol: h11.Connection, reader: asyncio.StreamReader) -> h11.Event:
    try:
        while (event := protocol.next_event()) is h11.NEED_DATA:
            async with deadlines.timeout(READ_SECONDS):
                protocol.receive_data(await reader.read(CHUNK))
    except TimeoutError:
        raise TransportFailed(Fault.SILENT) from None
    except (OSError, h11.RemoteProtocolError):
        raise TransportFailed(Fault.BROKEN) from None
    if not isinstance(event, h11.Event):
        raise TransportFailed(Fault.BROKEN)
    return event

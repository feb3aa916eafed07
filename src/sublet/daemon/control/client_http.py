"""HTTP/1.1 over the control socket, as little of it as the client needs.

A general HTTP client takes 100 ms of processor time to import, more than everything else that ``sublet ls`` does, and
knows proxies, cookies, pools and redirects that a Unix socket has no use for.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlencode

import h11

from sublet import deadlines
from sublet.protocol.lines import LineCutter, LineTooLong

CONNECT_SECONDS = 5.0
READ_SECONDS = 60.0
"""Longer than any answer may take, long polls included, and than the pause between two heartbeats of a stream."""
LOOK_SECONDS = 1.0
"""How often whoever waits looks whether the daemon's process is stopped, and so answers nobody."""
MAX_ANSWER_BYTES = 64 << 20
CHUNK = 65536
HOST = "sublet"
"""What we send as Host. A browser that was lured to the socket by some proxy would send another."""

_CREDENTIALS = struct.Struct("3i")
"""Process, user and group at the other end of a Unix socket."""

Query = Mapping[str, str | float | bool | None]


class Fault(Enum):
    """What kept an answer from coming."""

    ABSENT = "nobody listens"
    SILENT = "no answer in time"
    STOPPED = "the process is stopped"
    BROKEN = "the connection broke"


class TransportFailed(Exception):
    """There is no answer, or no end of it. ``pid`` is the process that does not answer, where that is known."""

    def __init__(self, fault: Fault, pid: int | None = None) -> None:
        super().__init__(fault.value)
        self.fault = fault
        self.pid = pid


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
    pid = _listener(writer)
    try:
        protocol = h11.Connection(our_role=h11.CLIENT)
        writer.write(_request(protocol, method, _target(path, query or {}), body))
        with contextlib.suppress(OSError):  # a server that refuses early has answered all the same
            async with deadlines.timeout(READ_SECONDS):
                await writer.drain()
        head = await _next(protocol, reader, pid)
        while isinstance(head, h11.InformationalResponse):
            head = await _next(protocol, reader, pid)
        if not isinstance(head, h11.Response):
            raise TransportFailed(Fault.BROKEN)
        yield HttpAnswer(head.status_code, _chunks(protocol, reader, pid))
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


async def _chunks(protocol: h11.Connection, reader: asyncio.StreamReader, pid: int | None) -> AsyncIterator[bytes]:
    while not isinstance(event := await _next(protocol, reader, pid), h11.EndOfMessage):
        if not isinstance(event, h11.Data):
            raise TransportFailed(Fault.BROKEN)
        yield bytes(event.data)


async def _next(protocol: h11.Connection, reader: asyncio.StreamReader, pid: int | None) -> h11.Event:
    try:
        while (event := protocol.next_event()) is h11.NEED_DATA:
            protocol.receive_data(await _read(reader, pid))
    except (OSError, h11.RemoteProtocolError):
        raise TransportFailed(Fault.BROKEN) from None
    if not isinstance(event, h11.Event):
        raise TransportFailed(Fault.BROKEN)
    return event


async def _read(reader: asyncio.StreamReader, pid: int | None) -> bytes:
    """Return what comes next.

    Raises:
        TransportFailed: nothing comes in time, or the process that would send it is stopped.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + READ_SECONDS
    while (left := until - loop.time()) > 0:
        try:
            async with deadlines.timeout(min(LOOK_SECONDS, left)):
                return await reader.read(CHUNK)
        except TimeoutError:
            if pid is not None and is_stopped(pid):
                raise TransportFailed(Fault.STOPPED, pid) from None
    raise TransportFailed(Fault.SILENT, pid)


def _listener(writer: asyncio.StreamWriter) -> int | None:
    """Return the process that listens at the other end of a connection; None where the system does not tell."""
    option = getattr(socket, "SO_PEERCRED", None)
    made = writer.get_extra_info("socket")
    if option is None or made is None:
        return None
    with contextlib.suppress(OSError):
        pid: int = _CREDENTIALS.unpack(made.getsockopt(socket.SOL_SOCKET, option, _CREDENTIALS.size))[0]
        return pid or None
    return None


def is_stopped(pid: int) -> bool:
    """Tell whether a process was stopped by a signal or a debugger; False where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] in (["T"], ["t"])

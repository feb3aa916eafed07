"""A caller that writes bytes: HTTP as no library would send it, and a peer that answers what it likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass


@dataclass
class Caller:
    """One TCP connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def say(self, words: bytes) -> None:
        """Send ``words``; that nobody takes them is no failure."""
        with suppress(ConnectionError):
            self.writer.write(words)
            await self.writer.drain()

    async def answer(self) -> tuple[int, bytes]:
        """Return status and body of the next answer; 0 where there is none any more."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0, b""
        size = 0
        for line in head.split(b"\r\n")[1:]:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                size = int(value)
        return int(head.split(b" ", 2)[1]), await self.reader.readexactly(size)

    async def closed(self) -> bool:
        """Wait for the end and tell that it came without another byte."""
        with suppress(ConnectionError):
            return await self.reader.read(1) == b""
        return True


@asynccontextmanager
async def caller(address: tuple[str, int] | str) -> AsyncIterator[Caller]:
    """Connect to a TCP address or to a Unix socket."""
    if isinstance(address, str):
        reader, writer = await asyncio.open_unix_connection(address)
    else:
        reader, writer = await asyncio.open_connection(*address)
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


@asynccontextmanager
async def many(address: tuple[str, int] | str, count: int, words: bytes = b"") -> AsyncIterator[list[Caller]]:
    """Open ``count`` connections that say ``words`` and no more."""
    opened: list[Caller] = []
    try:
        for _ in range(count):
            if isinstance(address, str):
                reader, writer = await asyncio.open_unix_connection(address)
            else:
                reader, writer = await asyncio.open_connection(*address)
            opened.append(Caller(reader, writer))
            await opened[-1].say(words)
        yield opened
    finally:
        for one in opened:
            one.writer.transport.abort()


@asynccontextmanager
async def answering(words: bytes) -> AsyncIterator[str]:
    """Yield the URL of a peer that answers every request with ``words`` and closes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(words)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


def address_of(url: str) -> tuple[str, int]:
    """Return host and port of an http URL."""
    host, _, port = url.removeprefix("http://").strip("/").rpartition(":")
    return host, int(port)

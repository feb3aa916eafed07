"""A TCP proxy whose connections a test can cut, and which it can close to new ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class CutProxy:
    """Carries bytes to ``port`` on this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._writers: set[asyncio.StreamWriter] = set()
        self.port = 0
        self.refusing = False
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        # Counted once it can be cut: who waits for a connection may cut it at once.
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers |= {writer, there_writer}
        self.connections += 1
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_carry(reader, there_writer))
                group.create_task(_carry(there_reader, writer))
        finally:
            for end in (writer, there_writer):
                self._writers.discard(end)
                end.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def cut_proxy(target_url: str) -> AsyncIterator[CutProxy]:
    """Run a proxy to the server at ``target_url``."""
    proxy = CutProxy(int(target_url.rsplit(":", 1)[1]))
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    async with server:
        yield proxy
        server.close()
        proxy.cut()

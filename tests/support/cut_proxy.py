"""A TCP proxy whose connections a test can cut, and which it can close to new ones."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress


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
        """Break every connection; on the proxy's event loop."""
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


class Cable:
    """A line between two processes that can be cut from any thread, and taken away."""

    def __init__(self, proxy: CutProxy, loop: asyncio.AbstractEventLoop) -> None:
        self._proxy = proxy
        self._loop = loop
        self.port = proxy.port

    def cut(self) -> None:
        """Break every connection; it can be made again."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    @contextmanager
    def out(self) -> Iterator[None]:
        """Let nothing through meanwhile."""
        self._proxy.refusing = True
        self.cut()
        try:
            yield
        finally:
            self._proxy.refusing = False

    async def _cut(self) -> None:
        self._proxy.cut()


@contextmanager
def cable(port: int) -> Iterator[Cable]:
    """Run a line to a port of this machine, where perhaps nobody listens yet; ``Cable.port`` is called in its place."""
    loop, made, ended = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[CutProxy] = []

    async def run() -> None:
        async with cut_proxy(f"http://127.0.0.1:{port}") as proxy:
            found.append(proxy)
            made.set()
            await ended.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    made.wait()
    try:
        yield Cable(found[0], loop)
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()

"""A hostile executor: it holds the key of a lease, and speaks raw SFTP over as many connections as it gets."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, cast

import asyncssh

from attacks.flood import Target
from support.sftp_client import INIT, NO_ATTRIBUTES, Packet, frame, parse, string

OPEN, CLOSE, WRITE, LSTAT, OPENDIR, READDIR, MKDIR, STAT, RENAME, EXTENDED = 3, 4, 6, 7, 11, 12, 14, 17, 18, 200
READ_FLAG, WRITE_NEW = 1, 2 | 8
BATCH = 400
"""Requests that are sent at once."""
Make = Callable[[int], bytes]
"""Returns a request for its number; several of them where that is what the flood does."""


class Hose(asyncssh.SSHClientSession[bytes]):
    """A channel that pours requests in, and counts answers without keeping them."""

    def __init__(self) -> None:
        self.answers = 0
        self.closed = asyncio.Event()
        self.channel: asyncssh.SSHClientChannel[bytes] | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._answered = asyncio.Event()
        self._data = b""
        self._last = b""

    def data_received(self, data: bytes, datatype: int | None) -> None:
        """Count what arrives."""
        self._data += data
        start = 0
        while len(self._data) - start >= 4:
            end = start + 4 + int.from_bytes(self._data[start : start + 4], "big")
            if end > len(self._data):
                break
            self.answers += 1
            self._last = self._data[start:end]
            start = end
        self._data = self._data[start:]
        self._answered.set()

    def pause_writing(self) -> None:
        """Hold."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self.closed.set()
        self._writable.set()
        self._answered.set()

    @property
    def last_status(self) -> int | None:
        """The status of the last answer, None where that was none."""
        return parse(self._last).status

    async def ask(self, kind: int, body: bytes) -> Packet:
        """Send one request while no other is under way, and return its answer."""
        self.send(frame(kind, 1, body))
        await self.until(self.answers + 1)
        return parse(self._last)

    def send(self, data: bytes) -> None:
        """Send bytes, whatever they are."""
        assert self.channel is not None
        self.channel.write(data)

    async def until(self, answers: int) -> None:
        """Wait until so many answers have come.

        Raises:
            ConnectionError: the channel has ended before.
        """
        while self.answers < answers:
            if self.closed.is_set():
                raise ConnectionError("the channel ended")
            self._answered.clear()
            await self._answered.wait()

    async def pour(self, make: Make) -> None:
        """Send what ``make`` makes, as fast as it is taken, until the channel ends."""
        for number in count(0, BATCH):
            if self.closed.is_set():
                return
            self.send(b"".join(make(number + one) for one in range(BATCH)))
            await asyncio.sleep(0)
            await self._writable.wait()


@asynccontextmanager
async def connected(target: Target, **options: Any) -> AsyncIterator[asyncssh.SSHClientConnection]:
    """Log in as the executor of the lease."""
    host, port = target.sftp
    options = {"username": target.lease, "client_keys": [target.key], **options}
    connection = await asyncssh.connect(
        host,
        port,
        known_hosts=([asyncssh.import_public_key(target.host_key)], [], []),
        config=None,
        agent_path=None,
        **options,
    )
    try:
        yield connection
    finally:
        connection.abort()
        await connection.wait_closed()


async def hose(connection: asyncssh.SSHClientConnection, *, window: int = 2 << 20, max_pktsize: int = 32768) -> Hose:
    """Open a channel and greet."""
    channel, session = await connection.create_session(
        Hose, subsystem="sftp", encoding=None, window=window, max_pktsize=max_pktsize
    )
    opened = cast(Hose, session)
    opened.channel = channel
    opened.send(INIT)
    await opened.until(1)
    return opened


async def again_and_again(attack: Callable[[], Any]) -> None:
    """Run ``attack`` for ever, whatever the lender does to it."""
    while True:
        with contextlib.suppress(OSError, asyncssh.Error):
            await attack()
        await asyncio.sleep(0.01)


def flood_of(make: Callable[[Hose], Any], channels: int = 4) -> Callable[[Target], Any]:
    """Return a flood over so many channels of one connection.

    Args:
        make: prepares a channel where that is needed, and returns the ``Make`` of what it pours.
        channels: how many pour at once.
    """

    async def pour(connection: asyncssh.SSHClientConnection) -> None:
        opened = await hose(connection)
        await opened.pour(await make(opened))

    async def run(target: Target) -> None:
        async def attack() -> None:
            async with connected(target) as connection, asyncio.TaskGroup() as group:
                for _ in range(channels):
                    group.create_task(_quietly(pour(connection)))

        await again_and_again(attack)

    return run


async def _quietly(work: Any) -> None:
    with contextlib.suppress(OSError, asyncssh.Error):
        await work


# what is poured


def path_request(kind: int, path: bytes) -> bytes:
    """Return a request that is about a path."""
    return frame(kind, 1, string(path))


def rename(old: bytes, new: bytes) -> bytes:
    """Return a rename."""
    return frame(RENAME, 1, string(old) + string(new))


def mkdir(path: bytes) -> bytes:
    """Return the making of a directory."""
    return frame(MKDIR, 1, string(path) + NO_ATTRIBUTES)


def open_file(path: bytes, flags: int) -> bytes:
    """Return an OPEN."""
    return frame(OPEN, 1, string(path) + struct.pack(">I", flags) + NO_ATTRIBUTES)


def handles() -> Iterator[bytes]:
    """Yield the names of handles in the order in which the lender gives them."""
    return (number.to_bytes(8, "big") for number in count())


def on_handle(kind: int, handle: bytes, rest: bytes = b"") -> bytes:
    """Return a request that is about a handle."""
    return frame(kind, 1, string(handle) + rest)


def extended(name: bytes, value: bytes) -> bytes:
    """Return an extended request."""
    return frame(EXTENDED, 1, string(name) + string(value))

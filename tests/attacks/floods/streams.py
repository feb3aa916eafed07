"""Floods of the transports that carry everything at once, by an executor with the key of such a lease."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import struct
import tarfile
from collections.abc import Awaitable, Callable, Iterator
from typing import cast

import asyncssh

from attacks.flood import Flood, Target
from attacks.kit.executor import again_and_again, connected
from sublet.workspace.archive.wire import MAX_FRAME, SUBSYSTEM, Frame, frame
from support.noise import noise

PIECE = 60_000


class Pipe(asyncssh.SSHClientSession[bytes]):
    """A channel of the archive transport; what comes is thrown away, slowly or not."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()

    def pause_writing(self) -> None:
        """Hold."""
        self.writable.clear()

    def resume_writing(self) -> None:
        """Go on."""
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note the end."""
        self.closed.set()
        self.writable.set()


def gets() -> Iterator[bytes]:
    """Yield the request for all that is lent."""
    yield frame(Frame.GET)


def plans() -> Iterator[bytes]:
    """Yield an upload whose plan never ends: long names, each another one."""
    yield frame(Frame.PUT)
    for number in itertools.count():
        name = b"workspace/" + b"%012d" % number + b"/x" * 1_000
        yield frame(Frame.PLAN, struct.pack(">cQH", b"f", 1 << 40, len(name)) + name)


def tars() -> Iterator[bytes]:
    """Yield an upload of many small files, then of one that never ends."""
    yield frame(Frame.PUT)
    yield frame(Frame.GO)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for number in range(2_000):
            entry = tarfile.TarInfo(f"workspace/{noise(4).hex()}/{number}")
            entry.size = 1
            tar.addfile(entry, io.BytesIO(b"x"))
        endless = tarfile.TarInfo("workspace/endless")
        endless.size = 1 << 40
        made.write(endless.tobuf())
    for data in (made.getvalue()[at : at + PIECE] for at in range(0, len(made.getvalue()), PIECE)):
        yield frame(Frame.DATA, data)
    while True:
        yield frame(Frame.DATA, bytes(PIECE))


def nonsense() -> Iterator[bytes]:
    """Yield a bundle and a tar that are none, frame by frame."""
    yield frame(Frame.PUT)
    yield frame(Frame.GO)
    head = b"# v2 git bundle\n" + b"0" * 40 + b" refs/heads/main\n\nPACK\0\0\0\2\xff\xff\xff\xff"
    yield frame(Frame.DATA, head)
    while True:
        yield frame(Frame.DATA, noise(min(PIECE, MAX_FRAME)))


def many_frames() -> Iterator[bytes]:
    """Yield frames of nothing, many in a packet."""
    yield frame(Frame.PUT)
    yield frame(Frame.GO)
    while True:
        yield frame(Frame.DATA) * 5_000


def stream(words: Callable[[], Iterator[bytes]], *, reads: bool = True) -> Callable[[Target], Awaitable[None]]:
    """Return the flood that opens a transfer, says ``words`` until it is cut off, and does so again."""

    async def attack(target: Target) -> None:
        async with connected(target) as connection:
            while True:
                with contextlib.suppress(asyncssh.ChannelOpenError):
                    channel, session = await connection.create_session(Pipe, subsystem=SUBSYSTEM, encoding=None)
                    pipe = cast(Pipe, session)
                    if not reads:
                        channel.pause_reading()
                    for piece in words():
                        if pipe.closed.is_set():
                            break
                        with contextlib.suppress(BrokenPipeError, OSError):
                            channel.write(piece)
                        await asyncio.sleep(0)
                        await pipe.writable.wait()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(pipe.closed.wait(), 1)
                    channel.abort()
                await asyncio.sleep(0)

    async def run(target: Target) -> None:
        await again_and_again(lambda: attack(target))

    return run


_STREAM = ["workspace.serving.archive_session:ArchiveSession.data_received", "workspace.archive.wire:Frames.next"]


def _flood(name: str, run: Callable[[Target], Awaitable[None]], transport: str) -> Flood:
    return Flood(name=name, who="executor", covers=_STREAM, run=run, waves=2, transport=transport)


FLOODS = tuple(
    _flood(f"{transport}: {name}", run, transport)
    for transport in ("archive", "git")
    for name, run in {
        "downloads": stream(gets),
        "downloads that nobody reads": stream(gets, reads=False),
        "plans without end": stream(plans),
        "streams without end": stream(tars),
        "streams that are none": stream(nonsense),
        "frames of nothing": stream(many_frames),
    }.items()
)

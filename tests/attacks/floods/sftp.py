"""Floods of the SFTP port: by an executor with the key of a lease, and by strangers that never log in."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct

import anyio
import asyncssh

from attacks.flood import Flood, Target
from attacks.kit.executor import (
    CLOSE,
    LSTAT,
    OPENDIR,
    READ_FLAG,
    READDIR,
    STAT,
    WRITE,
    WRITE_NEW,
    Hose,
    Make,
    again_and_again,
    connected,
    extended,
    flood_of,
    handles,
    hose,
    mkdir,
    on_handle,
    open_file,
    path_request,
    rename,
)
from support.sftp_client import string

W = b"/workspace/"
READ = 5
SERVED = (
    "workspace.sftp.core:SftpCore.reply",
    "workspace.sftp.session:SftpSession._pump",
    "workspace.ssh.lane:FastLane._deliver",
    "workspace.ssh.turns:Turns._turn",
)
_numbers = itertools.count()


async def large_renames(channel: Hose) -> Make:
    """Move a directory of many names down and up again; on its way up it is walked through."""
    number = next(_numbers)
    here, below = W + b"large", W + b"below-%d" % number
    await channel.ask(14, string(below) + b"\0\0\0\0")
    back = rename(here, below + b"/large") + rename(below + b"/large", here)
    return lambda _: back


async def long_chains(channel: Hose) -> Make:
    """Ask for names that lead over as many links as are followed."""
    asked = path_request(STAT, W + b"link-16") + path_request(STAT, W + b"deep/" * 60 + b"../" * 30 + b"link-9")
    return lambda _: asked


async def listings(channel: Hose) -> Make:
    """List a directory of many names."""
    names = handles()

    def make(_: int) -> bytes:
        handle = next(names)
        pages = on_handle(READDIR, handle) * 10
        return path_request(OPENDIR, W + b"large") + pages + on_handle(CLOSE, handle)

    return make


async def long_names(channel: Hose) -> Make:
    """Ask for names of 250 KB, each another one."""
    return lambda number: path_request(LSTAT, W + b"%09d" % number + b"x" * 250_000) if number % 40 == 0 else b""


async def many_names(channel: Hose) -> Make:
    """Ask for as many different names as there are."""
    prefix = b"%d-" % next(_numbers)
    return lambda number: path_request(LSTAT, W + prefix + b"%09d" % number + b"x" * 200 + b".env")


async def long_new_paths(channel: Hose) -> Make:
    """Make and remove names whose paths are as long as can be."""
    above = W + b"new-%d/" % next(_numbers) + (b"y" * 250 + b"/") * 14
    parts = above.rstrip(b"/").split(b"/")
    for end in range(3, len(parts) + 1):
        await channel.ask(14, string(b"/".join(parts[:end])) + b"\0\0\0\0")
    return lambda number: mkdir(above + b"%09d" % number + b"z" * 100)


async def opened_and_closed(channel: Hose) -> Make:
    """Open and close a file."""
    names = handles()
    return lambda _: open_file(W + b"large/name-1", READ_FLAG) + on_handle(CLOSE, next(names))


async def never_closed(channel: Hose) -> Make:
    """Open directories and never close them."""
    return lambda _: path_request(OPENDIR, W + b"large")


async def single_bytes(channel: Hose) -> Make:
    """Write byte by byte."""
    opened = await channel.ask(3, string(W + b"bytes-%d" % next(_numbers)) + struct.pack(">II", WRITE_NEW, 0))
    return lambda number: on_handle(WRITE, opened.handle, struct.pack(">Q", number % 1_000_000) + string(b"x"))


async def syncs(channel: Hose) -> Make:
    """Write a little and ask for it to be on the disk."""
    opened = await channel.ask(3, string(W + b"synced-%d" % next(_numbers)) + struct.pack(">II", WRITE_NEW, 0))
    write = on_handle(WRITE, opened.handle, struct.pack(">Q", 0) + string(b"x" * 4096))
    return lambda _: write + extended(b"fsync@openssh.com", opened.handle)


async def room_left(channel: Hose) -> Make:
    """Ask for the room that is left."""
    asked = extended(b"statvfs@openssh.com", W)
    return lambda _: asked


async def crumbs(channel: Hose) -> Make:
    """Send a request in packets of one byte each."""
    request = path_request(LSTAT, W + b"large")
    assert channel.channel is not None

    def make(number: int) -> bytes:
        for byte in request:
            channel.send(bytes((byte,)))
        return b""

    return make


async def unread(target: Target) -> None:
    """Ask for much and read none of the answers."""

    async def attack() -> None:
        async with connected(target) as connection:
            channels = [await hose(connection) for _ in range(4)]
            for channel in channels:
                opened = await channel.ask(3, string(W + b"large/name-1") + struct.pack(">II", 3, 0))
                big = struct.pack(">Q", 0) + string(b"x" * 200_000)
                await channel.ask(WRITE, string(opened.handle) + big)
                assert channel.channel is not None
                channel.channel.pause_reading()
                channel.send(on_handle(READ, opened.handle, struct.pack(">QI", 0, 200_000)) * 20_000)
            await asyncio.sleep(5)

    await again_and_again(attack)


async def rekeys(target: Target) -> None:
    """Exchange keys after every few bytes."""

    async def attack() -> None:
        async with connected(target, rekey_bytes=1) as connection:
            channel = await hose(connection)
            await channel.pour(lambda _: path_request(LSTAT, W + b"large"))

    await again_and_again(attack)


async def channels(target: Target) -> None:
    """Open channels and close them again."""

    async def attack() -> None:
        async with connected(target) as connection:
            while True:
                with contextlib.suppress(asyncssh.ChannelOpenError):
                    channel = await hose(connection)
                    assert channel.channel is not None
                    channel.channel.abort()

    await again_and_again(attack)


async def logins(target: Target) -> None:
    """Go through a whole key exchange, and fail to log in."""
    key = asyncssh.generate_private_key("ssh-ed25519")

    async def attack() -> None:
        async with connected(target, client_keys=[key], login_timeout=5):
            pass

    await again_and_again(attack)


async def silence(target: Target) -> None:
    """Connect and say nothing, or half a word, as often as there is room."""
    held: list[socket.socket] = []
    try:
        for number in itertools.count():
            with contextlib.suppress(OSError):
                sock = socket.create_connection(target.sftp, timeout=1)
                held.append(sock)
                sock.send((b"", b"S", b"SSH-2.0-x\r\n", b"SUBLET-REVERSE ")[number % 4])
            if len(held) > 300:
                held.pop(0).close()
            await anyio.sleep(0.002)
    finally:
        for sock in held:
            sock.close()


def _flood(name: str, run: object, covers: tuple[str, ...] = (), waves: int = 1) -> Flood:
    return Flood(name=f"sftp: {name}", who="executor", covers=(*SERVED, *covers), run=run, waves=waves)  # type: ignore[arg-type]


FLOODS = (
    _flood("renames of a large directory", flood_of(large_renames), ("workspace.confined.held:HeldBelow._look",)),
    _flood("long chains of links", flood_of(long_chains), ("workspace.confined.fs:ConfinedFs.resolve",)),
    _flood("listings", flood_of(listings), ("workspace.sftp.handles:Listing.next_entries",)),
    _flood("names of 250 KB", flood_of(long_names), ("workspace.sftp.wire:Reader.path",)),
    _flood("many different names", flood_of(many_names), ("workspace.view.rules:Rules._name",)),
    _flood(
        "new names with long paths", flood_of(long_new_paths), ("workspace.serving.served_lease:ServedLease._touch",)
    ),
    _flood("opened and closed", flood_of(opened_and_closed), ("workspace.sftp.handles:Handles.add",)),
    _flood("directories that are never closed", flood_of(never_closed), ("workspace.sftp.handles:Handles.make_room",)),
    _flood("writes of one byte", flood_of(single_bytes), ("workspace.confined.file:WriteFile.write",)),
    _flood("syncs", flood_of(syncs), ("workspace.serving.slow_work:_OneByOne.submit",), waves=4),
    _flood("room that is left", flood_of(room_left), ("workspace.confined.fs:ConfinedFs.statvfs",)),
    _flood("packets of one byte", flood_of(crumbs, channels=1), waves=2),
    _flood("answers that nobody reads", unread, ("workspace.ssh.channel_session:ChannelSession._send",)),
    _flood("key exchanges without end", rekeys),
    _flood("channels that come and go", channels),
    Flood(
        name="sftp: logins that fail",
        who="stranger",
        covers=("workspace.serving.listener:DataPlane._serve_ssh",),
        run=logins,
        waves=8,
    ),
    Flood(
        name="sftp: callers that stay silent",
        who="stranger",
        covers=("workspace.serving.strangers:Strangers.make_room",),
        run=silence,
    ),
)

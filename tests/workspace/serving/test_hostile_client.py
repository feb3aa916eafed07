"""A client that holds a valid key and means harm, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import stat
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol, cast

import asyncssh
import psutil
import pytest

from sublet.disk.openat2 import Opener, choose_opener, open_beneath, walk_beneath
from sublet.workspace.serving.login import MAX_BLOCKED_INPUT
from support.noise import noise
from support.sftp_client import NO_ATTRIBUTES, Lender, eventually, frame, lender, open_channel, string

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("tuned_or_not")]

DENIED, NO_SUCH_FILE = 3, 2
MEBIBYTE = 1 << 20
MAX_GROWTH = 64 * MEBIBYTE


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace beside a secret."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret")
    root = tmp_path / "root"
    (root / "dir").mkdir(parents=True)
    (root / "dir" / "secret").write_text("inside")
    (root / "file").write_bytes(b"content")
    return root


def resident() -> int:
    """Return this process's memory."""
    return int(psutil.Process().memory_info().rss)


async def still_serves(lent: Lender) -> None:
    """Make sure that another client is served as ever."""
    async with lent.connect() as connection:
        channel = await open_channel(connection)
        assert (await channel.ask(7, string(b"/workspace/file"))).kind == 105


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"\xff\xff\xff\xff" + b"x" * 100, id="huge"),
        pytest.param(struct.pack(">I", 260 * 1024 + 1) + b"x", id="just too large"),
        pytest.param(b"\0\0\0\0", id="empty"),
        pytest.param(b"\0\0\0\4\7\0\0\0", id="without a request id"),
    ],
)
async def test_packets_that_cannot_be_answered_end_the_channel_alone(workspace: Path, sent: bytes) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        bad, good = await open_channel(connection), await open_channel(connection)
        await bad.open(b"/workspace/file", 1)
        before = len(os.listdir("/proc/self/fd"))
        bad.channel.write(sent)
        await bad.session.closed.wait()
        assert len(os.listdir("/proc/self/fd")) == before - 1
        assert (await good.ask(7, string(b"/workspace/file"))).kind == 105


async def test_a_packet_that_never_ends_is_not_waited_for_in_memory(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        channel.channel.write(struct.pack(">I", 200_000) + b"\6" + b"x" * 100_000)
        await still_serves(lent)


@pytest.mark.parametrize("mode", ["ro", "rw"])
@pytest.mark.parametrize("opener", [open_beneath, walk_beneath], ids=["openat2", "walk"])
async def test_links_that_are_swapped_during_the_run_lead_nowhere(
    workspace: Path, mode: Literal["ro", "rw"], opener: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    if opener is open_beneath and choose_opener() is not open_beneath:
        pytest.skip("this kernel has no openat2")
    monkeypatch.setattr("sublet.workspace.confined.fs.choose_opener", lambda: opener)
    (workspace / "trap").symlink_to("../outside")
    stop = threading.Event()

    def swap() -> None:
        renameat2 = ctypes.CDLL(None).renameat2
        fd = os.open(workspace, os.O_RDONLY)
        while not stop.is_set():
            renameat2(fd, b"dir", fd, b"trap", 2)
        os.close(fd)

    swapper = threading.Thread(target=swap)
    swapper.start()
    served = refused = 0
    try:
        async with lender(workspace, access_mode=mode) as lent, lent.connect() as connection:
            channel = await open_channel(connection)
            until = time.monotonic() + 0.7
            while time.monotonic() < until:
                opened = await channel.open(b"/workspace/dir/secret", 1)
                if opened.kind == 102:
                    read = await channel.ask(5, string(opened.handle) + struct.pack(">QI", 0, 100))
                    assert read.data == b"inside"
                    await channel.ask(4, string(opened.handle))
                    served += 1
                else:
                    assert opened.status in (DENIED, NO_SUCH_FILE)
                    refused += 1
                for path, flags in ((b"dir/secret", 2), (b"dir/planted", 2 | 8), (b"trap/secret", 2 | 8)):
                    opened = await channel.open(b"/workspace/" + path, flags)
                    if opened.kind == 102:
                        assert mode == "rw"
                        await channel.ask(6, string(opened.handle) + struct.pack(">Q", 0) + string(b"inside"))
                        await channel.ask(4, string(opened.handle))
                await channel.ask(14, string(b"/workspace/dir/planted-dir") + NO_ATTRIBUTES)
    finally:
        stop.set()
        swapper.join()
    assert served
    assert refused
    assert os.listdir(workspace.parent / "outside") == ["secret"]
    assert (workspace.parent / "outside" / "secret").read_text() == "secret"


async def test_a_fifo_stalls_nobody(workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        for flags in (1, 2, 3, 2 | 8, 2 | 16, 2 | 4):
            assert (await channel.open(b"/workspace/fifo", flags)).status == DENIED
        assert stat.S_ISFIFO((await channel.ask(7, string(b"/workspace/fifo"))).attrs[4])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make devices")
async def test_devices_do_not_open(workspace: Path) -> None:
    os.mknod(workspace / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        for flags in (1, 2, 3, 2 | 8 | 16):
            assert (await channel.open(b"/workspace/zero", flags)).status == DENIED


async def test_a_client_that_never_reads_costs_no_memory(workspace: Path) -> None:
    with (workspace / "big").open("wb") as big:
        big.truncate(64 * MEBIBYTE)
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection, window=(1 << 32) - 1)
        handle = (await channel.open(b"/workspace/big", 1)).handle
        # the client's transport reads no more, however large the window that it granted
        transport = connection._transport
        assert transport is not None
        transport.pause_reading()
        before = resident()
        usage = lent.plane.usage(lent.lease_id)
        assert usage is not None
        for _ in range(600):
            channel.channel.write(frame(5, 1, string(handle) + struct.pack(">QI", 0, 255 * 1024)))
        read = -1
        while usage.bytes_read != read:
            read = usage.bytes_read
            await asyncio.sleep(0.3)
        assert read < 32 * MEBIBYTE
        assert resident() - before < MAX_GROWTH
        await still_serves(lent)
        transport.resume_reading()
        await eventually(lambda: usage.bytes_read == 600 * 255 * 1024)


class _Rekeying(Protocol):
    """The private part of asyncssh that starts a key exchange."""

    def _send_kexinit(self) -> None: ...


async def test_a_key_exchange_that_never_ends_costs_no_memory(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (workspace / "big").open("wb") as big:
        big.truncate(64 * MEBIBYTE)
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection, window=(1 << 32) - 1)
        handle = (await channel.open(b"/workspace/big", 1)).handle
        request = frame(5, 1, string(handle) + struct.pack(">QI", 0, 255 * 1024))
        usage = lent.plane.usage(lent.lease_id)
        assert usage is not None
        before = resident()
        # the server's half of the exchange is dropped, so that it waits for ever; our requests still go out
        monkeypatch.setattr(type(connection), "_process_kexinit", lambda *_: None, raising=False)
        cast(_Rekeying, connection)._send_kexinit()
        monkeypatch.setattr(connection, "_kex_complete", True)
        for _ in range(600):
            channel.channel.write(request)
        await asyncio.sleep(0.5)
        assert usage.bytes_read < 4 * MEBIBYTE
        assert resident() - before < MAX_GROWTH
        await still_serves(lent)


async def test_a_client_that_pours_on_while_it_does_not_read_is_cut(workspace: Path) -> None:
    with (workspace / "big").open("wb") as big:
        big.truncate(MEBIBYTE)
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection, window=(1 << 32) - 1)
        handle = (await channel.open(b"/workspace/big", 1)).handle
        transport = connection._transport
        assert transport is not None
        transport.pause_reading()
        for _ in range(200):
            channel.channel.write(frame(5, 1, string(handle) + struct.pack(">QI", 0, 255 * 1024)))
        lease = lent.plane._leases[lent.lease_id]
        sent = 0
        body = b"x" * 30_000
        while lease.connections and sent < 4 * MAX_BLOCKED_INPUT:
            # asyncssh answers these whether anybody reads its answers or not
            connection.send_packet(80, string(b"nonsense"), b"\1", body)
            sent += len(body)
            await asyncio.sleep(0)
        assert not lease.connections
        await still_serves(lent)


async def test_an_endless_environment_is_not_kept(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        environment = [(f"V{n}", "x" * 1000) for n in range(100)]
        with contextlib.suppress(asyncssh.Error, ConnectionError):
            await connection.create_session(asyncssh.SSHClientSession, subsystem="sftp", encoding=None, env=environment)
        # what arrives after the variables finds the connection cut
        with contextlib.suppress(OSError, asyncssh.Error):
            connection.send_packet(80, string(b"anything"), b"\0")
        await connection.wait_closed()
        await still_serves(lent)


async def test_a_channel_asks_for_sftp_once_and_for_nothing_else(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        request: Callable[..., object] = channel.channel._make_request  # type: ignore[attr-defined]
        for kind, arguments in (
            (b"subsystem", [string(b"sftp")]),
            (b"exec", [string(b"id")]),
            (b"shell", []),
            (b"pty-req", [string(b"xterm"), b"\0" * 16, string(b"")]),
            (b"x11-req", [b"\0", string(b"a"), string(b"b"), b"\0" * 4]),
            (b"auth-agent-req@openssh.com", []),
        ):
            assert await cast("asyncio.Future[bool]", request(kind, *arguments)) is False
        assert (await channel.ask(7, string(b"/"))).kind == 105


async def test_requests_wait_for_a_slow_one_and_keep_their_order(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        handle = (await channel.open(b"/workspace/file", 2)).handle
        fsync = string(b"fsync@openssh.com") + string(handle)
        stream = b"".join(
            frame(200, 2 * n, fsync) + frame(6, 2 * n + 1, string(handle) + struct.pack(">Q", 0) + string(b"%03d" % n))
            for n in range(50)
        )
        channel.channel.write(stream + frame(4, 100, string(handle)))
        answered = [int.from_bytes((await channel.session.packet())[5:9], "big") for _ in range(101)]
        assert answered == list(range(101))
        assert (workspace / "file").read_bytes()[:3] == b"049"


async def test_a_session_may_end_while_a_slow_request_runs(workspace: Path) -> None:
    async with lender(workspace) as lent:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(10):
            async with lent.connect() as connection:
                channel = await open_channel(connection)
                handle = (await channel.open(b"/workspace/file", 2)).handle
                for _ in range(5):
                    channel.channel.write(frame(200, 1, string(b"fsync@openssh.com") + string(handle)))
        await eventually(lambda: len(os.listdir("/proc/self/fd")) == before)
        await still_serves(lent)


async def test_garbage_instead_of_ssh_harms_nobody(workspace: Path) -> None:
    async with lender(workspace) as lent:
        for garbage in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000, b"SSH-2.0-x\r\n" + noise(5000), b"SSH-1.0-x\r\n"):
            _, writer = await asyncio.open_connection(*lent.plane.address)
            writer.write(garbage)
            writer.close()
        await eventually(lambda: len(lent.plane._strangers) == 0)
        await still_serves(lent)

"""Callers of the SFTP port that have not logged in: what they may send, cost and keep from others."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from pathlib import Path

import asyncssh
import pytest
from structlog.testing import capture_logs

from attacks.kit.executor import LSTAT, connected, hose
from attacks.scenes import Scene, scene
from sublet.protocol.sources import source_of
from sublet.workspace.serving import login, strangers
from sublet.workspace.serving.strangers import Strangers
from support.sftp_client import string

pytestmark = pytest.mark.anyio
FILE = b"/workspace/file"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What is lent."""
    (tmp_path / "honest").mkdir()
    (tmp_path / "honest" / "file").write_text("content\n")
    return tmp_path


async def dial(lent: Scene) -> socket.socket:
    """Return a connection that says nothing."""
    sock = socket.socket()
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, lent.plane.address)
    return sock


async def ended(sock: socket.socket) -> None:
    """Read until the other side has ended the connection."""
    with contextlib.suppress(ConnectionError):
        while await asyncio.get_running_loop().sock_recv(sock, 65536):
            pass


async def test_silent_callers_keep_nobody_out_who_has_said_a_word(root: Path) -> None:
    async with scene(root) as lent:
        honest = await dial(lent)
        await asyncio.get_running_loop().sock_sendall(honest, b"SSH-2.0-honest\r\n")
        assert (await asyncio.get_running_loop().sock_recv(honest, 65536)).startswith(b"SSH-2.0-")
        silent = [await dial(lent) for _ in range(3 * strangers.MAX_STRANGERS_PER_SOURCE)]
        await ended(silent[0])
        with contextlib.suppress(BlockingIOError):
            while True:
                assert honest.recv(65536)
        async with connected(lent.honest) as connection:
            assert (await (await hose(connection)).ask(LSTAT, string(FILE))).kind == 105
        for sock in (honest, *silent):
            sock.close()


async def test_room_is_made_by_who_has_come_least_far() -> None:
    async def serve() -> None:
        await asyncio.Event().wait()

    known = Strangers()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(serve()) for _ in range(strangers.MAX_STRANGERS_PER_SOURCE)]
        for task in tasks:
            known.add(task, "10.0.0.1")
        for task in tasks[:-1]:
            known.advance(task)
        known.make_room("10.0.0.1")
        await asyncio.sleep(0)
        assert [task for task in tasks if task.cancelling()] == [tasks[-1]]
        known.make_room("10.0.0.2")
        assert len(known) == strangers.MAX_STRANGERS_PER_SOURCE - 1
        for task in tasks:
            task.cancel()


def test_a_network_of_ipv6_is_one_source() -> None:
    assert source_of("2001:db8::1") == source_of("2001:db8::ffff:1") != source_of("2001:db8:0:1::1")
    assert source_of("::ffff:10.0.0.1") == source_of("10.0.0.1") != source_of("10.0.0.2")
    assert source_of("fe80::1%eth0") == source_of("fe80::2%eth0")


@pytest.mark.usefixtures("tuned_or_not")
@pytest.mark.parametrize("word", [b"SSH-2.0-x\r\n", b"x", b"SUBLET-REVERSE "], ids=["ssh", "no word", "preamble"])
async def test_who_sends_without_end_and_does_not_log_in_is_cut(root: Path, word: bytes) -> None:
    async with scene(root) as lent:
        sock = await dial(lent)
        with contextlib.suppress(ConnectionError):
            await asyncio.get_running_loop().sock_sendall(sock, word + b"\0" * (1 << 20))
            await ended(sock)
        sock.close()


@pytest.mark.usefixtures("tuned_or_not")
async def test_what_is_sent_while_a_login_waits_is_bounded(root: Path) -> None:
    """A login for a lease that may still come waits for seconds, and asyncssh keeps what arrives meanwhile."""
    async with scene(root) as lent:
        lent.plane.take_up.begin()
        host, port = lent.plane.address
        client = await asyncio.get_running_loop().run_in_executor(None, socket.create_connection, (host, port))
        connecting = asyncio.ensure_future(
            asyncssh.connect(sock=client, username="dlg_absent", known_hosts=None, config=None, client_keys=None)
        )
        while not any(stranger == 2 for stranger in lent.plane._strangers._steps.values()):
            await asyncio.sleep(0)
        out = socket.socket(fileno=client.dup().detach() if hasattr(client, "dup") else client.fileno())
        out.setblocking(False)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 64 * login.MAX_STRANGER_BYTES:
                await asyncio.get_running_loop().sock_sendall(out, b"x" * 65536)
                sent += 65536
        assert sent < 64 * login.MAX_STRANGER_BYTES
        out.close()
        connecting.cancel()
        await asyncio.wait([connecting])


@pytest.mark.parametrize(
    "exchange",
    ["rsa2048-sha256", "diffie-hellman-group18-sha512", "diffie-hellman-group-exchange-sha256", "curve448-sha512"],
)
async def test_key_exchanges_that_take_long_are_not_offered(root: Path, exchange: str) -> None:
    async with scene(root) as lent:
        with pytest.raises(asyncssh.KeyExchangeFailed):
            async with connected(lent.honest, kex_algs=[exchange]):
                pass


async def test_a_version_that_is_no_ascii_is_one_failed_connection(root: Path) -> None:
    with capture_logs() as logged:
        async with scene(root) as lent:
            sock = await dial(lent)
            await asyncio.get_running_loop().sock_sendall(sock, b"SSH-2.0-\xff\xfe\r\n")
            await ended(sock)
            sock.close()
            async with connected(lent.honest) as connection:
                assert (await (await hose(connection)).ask(LSTAT, string(FILE))).kind == 105
    told = [entry for entry in logged if "an SSH connection" in entry["event"]]
    assert [(entry["event"], "exc_info" in entry) for entry in told] == [("an SSH connection failed", False)]

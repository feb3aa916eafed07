"""What an executor makes a lender keep, over real connections: it has a bound in bytes, or the connection is cut."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import asyncssh
import pytest
from structlog.testing import capture_logs

from attacks.kit.executor import LSTAT, Hose, connected, extended, hose, on_handle, path_request
from attacks.kit.repository import hostile_lender
from attacks.scenes import Scene, scene
from sublet.workspace.archive import client
from sublet.workspace.archive.wire import SUBSYSTEM, Frame, Planned, frame, plan_frames
from sublet.workspace.serving.login import CHANNEL_BYTES, MAX_GLOBAL_REQUESTS, LeaseConnection
from sublet.workspace.serving.served_lease import MAX_LEASE_BYTES, MAX_PEER_BYTES
from sublet.workspace.sftp.wire import MAX_PACKET
from sublet.workspace.ssh import receive_window
from sublet.workspace.ssh.channel_session import MAX_ENVIRONMENT_BYTES, MAX_PIECES, MIN_PACKET_BYTES
from sublet.workspace.ssh.connection import connect
from sublet.workspace.ssh.receive_window import LEAST_WINDOW, MOST_WINDOW
from support.sftp_client import export, string

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("tuned_or_not")]

W = b"/workspace/"
MEBIBYTE = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What is lent."""
    for name in ("mallory", "honest"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(bytes(300_000))
    return tmp_path


async def test_a_plan_of_long_names_is_refused_before_it_takes_much(root: Path) -> None:
    async with scene(root, transport="archive") as lent, connected(lent.attacker) as connection:
        channel, session = await connection.create_session(Hose, subsystem=SUBSYSTEM, encoding=None)
        attacker = cast(Hose, session)
        channel.write(frame(Frame.PUT))
        names = ((b"workspace", b"%06d" % number, *(b"y" * 250,) * 14) for number in range(36_000))
        with contextlib.suppress(BrokenPipeError):
            for piece in plan_frames(Planned(name, "deleted") for name in names):
                channel.write(piece)
                while channel.get_write_buffer_size() > MEBIBYTE:
                    await asyncio.sleep(0)
        await attacker.closed.wait()
        # What was announced is given back, and the lease goes on.
        _, again = await connection.create_session(Hose, subsystem=SUBSYSTEM, encoding=None)
        assert not cast(Hose, again).closed.is_set()
        assert not lent.usage.returned


async def test_crumbs_that_wait_are_cut(root: Path) -> None:
    """asyncssh keeps an object for each piece of input that waits, and moves all of them for each that it takes."""
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attacker = await hose(connection)
        opened = await attacker.ask(3, string(W + b"file") + struct.pack(">II", 1, 0))
        channel = attacker.channel
        assert channel is not None
        channel.pause_reading()
        attacker.send(on_handle(5, opened.handle, struct.pack(">QI", 0, 255_000)) * 60)
        while not attacker.closed.is_set():
            for _ in range(MAX_PIECES):
                attacker.send(b"x")
            await asyncio.sleep(0)


async def test_a_channel_that_takes_a_byte_at_a_time_is_refused(root: Path) -> None:
    async with scene(root) as lent, connected(lent.attacker) as connection:
        with pytest.raises((asyncssh.Error, ConnectionError)):
            await hose(connection, max_pktsize=MIN_PACKET_BYTES - 1)
        attacker = await hose(connection, max_pktsize=MIN_PACKET_BYTES)
        assert (await attacker.ask(LSTAT, string(W + b"file"))).kind == 105


async def test_variables_are_counted_in_bytes(root: Path) -> None:
    async with scene(root) as lent, connected(lent.attacker) as connection:
        with contextlib.suppress(asyncssh.Error, ConnectionError):
            await connection.create_session(
                Hose, subsystem="sftp", encoding=None, env={"A": "x" * (MAX_ENVIRONMENT_BYTES + 1)}
            )
        await connection.wait_closed()


@pytest.mark.parametrize("request_name", [b"tcpip-forward", b"keepalive@openssh.com"])
async def test_requests_about_the_connection_do_not_pile_up(root: Path, request_name: bytes) -> None:
    """Some wait for another, and answers wait for the end of a key exchange that a client need not finish."""
    with capture_logs() as told:
        async with scene(root) as lent, connected(lent.attacker) as connection:
            await hose(connection)
            raw = cast(Any, connection)
            raw._recv_handler = lambda: False  # no answer is even looked at
            body = string(request_name) + b"\x01"
            if request_name.startswith(b"keepalive"):
                raw._send_kexinit()
                raw._kex_complete = True  # which it never is
            else:
                body += string(b"") + struct.pack(">I", 0)
            for _ in range(200 * MAX_GLOBAL_REQUESTS):
                if raw._transport is None or raw._transport.is_closing():
                    break
                raw.send_packet(80, body)
                if _ % 50 == 0:
                    await asyncio.sleep(0)
            await connection.wait_closed()
            assert any("makes us keep what nobody asked for" in entry["event"] for entry in told)


async def test_channels_of_all_leases_of_a_peer_have_one_bound(root: Path) -> None:
    """Each channel is counted for what it could make us keep; others of another peer are not touched."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with scene(root) as lent, asyncio.TaskGroup() as group:
        plane, refused = lent.plane, 0
        connections = []
        for number in range(8):
            lease = f"dlg_more{number}"
            (root / lease).mkdir()
            plane.open(export(root / lease, key, lease_id=lease, peer="mallory"))
            for _ in range(4):
                host, port = plane.address
                connection = await asyncssh.connect(
                    host, port, username=lease, client_keys=[key], known_hosts=None, config=None, agent_path=None
                )
                connections.append(connection)
                for _ in range(4):
                    try:
                        await hose(connection)
                    except asyncssh.ChannelOpenError:
                        refused += 1
        budget = plane._of_peers["mallory"].waiting
        assert 0 < budget.held <= MAX_PEER_BYTES
        assert refused > 0
        assert all(lease.waiting.held <= MAX_LEASE_BYTES for lease in plane._leases.values())
        async with connected(lent.honest) as honest:
            assert (await (await hose(honest)).ask(LSTAT, string(W + b"file"))).kind == 105
        for connection in connections:
            connection.abort()
            group.create_task(connection.wait_closed())
        while budget.held:
            await asyncio.sleep(0)


def connections_of(lent: Scene, lease: str) -> list[LeaseConnection]:
    """Return the lender's side of the connections of a lease."""
    return [cast(LeaseConnection, one) for one in lent.plane._leases[lease].connections]


def waiting_in(connections: list[LeaseConnection]) -> int:
    """Return the bytes that have arrived on all channels and are not worked off, wherever they wait."""
    sessions = [session for connection in connections for session in connection._sessions]
    buffers = [cast(Any, session._channel)._recv_buf for session in sessions if session._channel]
    return sum(session._kept for session in sessions) + sum(len(data) for buffer in buffers for data, _ in buffer)


def windows_of(connections: list[LeaseConnection]) -> int:
    """Return the bytes of the windows of all channels."""
    windows = [session._window for connection in connections for session in connection._sessions]
    return sum(window.size for window in windows if window is not None)


async def test_requests_that_take_long_keep_no_more_than_their_windows(root: Path) -> None:
    """Each of them lets asyncssh hand on another piece, however little was worked off, and take another window."""
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attackers = [await hose(connection) for _ in range(4)]
        files = [
            (await one.ask(3, string(W + b"synced-%d" % n) + struct.pack(">II", 2 | 8, 0))).handle
            for n, one in enumerate(attackers)
        ]
        lenders_side = connections_of(lent, lent.attacker.lease)
        for one, handle in zip(attackers, files, strict=True):
            write = on_handle(6, handle, struct.pack(">Q", 0) + string(b"x" * 4096))
            one.send((write + extended(b"fsync@openssh.com", handle)) * 700)
        most = 0
        while min(one.answers for one in attackers) < 200:
            waiting = waiting_in(lenders_side)
            assert waiting <= windows_of(lenders_side)
            most = max(most, waiting)
            await asyncio.sleep(0)
        assert most > LEAST_WINDOW
        # All of it is answered in the end: a window that is not opened again would hold it up.
        for one in attackers:
            await one.until(2 + 1_400)
        assert waiting_in(lenders_side) == 0


async def test_pieces_of_an_archive_that_take_long_keep_no_more_than_their_window(root: Path) -> None:
    async with scene(root, transport="archive") as lent, connected(lent.attacker) as connection:
        channel, session = await connection.create_session(Hose, subsystem=SUBSYSTEM, encoding=None)
        attacker = cast(Hose, session)
        planned = [Planned((b"workspace", b"large"), "file", 8 * MEBIBYTE)]
        channel.write(frame(Frame.PUT) + b"".join(plan_frames(planned)) + frame(Frame.GO))
        lenders_side = connections_of(lent, lent.attacker.lease)
        usage = lent.plane._leases[lent.attacker.lease].usage
        for _ in range(16):
            channel.write(frame(Frame.DATA) * (MEBIBYTE // 5))
        most = 0
        for _ in range(3_000):
            waiting = waiting_in(lenders_side)
            assert waiting <= windows_of(lenders_side)
            most = max(most, waiting)
            await asyncio.sleep(0)
        assert most > LEAST_WINDOW // 2
        assert not attacker.closed.is_set()
        assert usage.bytes_written == 0


async def test_every_channel_of_a_lease_finds_room_for_a_request(root: Path) -> None:
    async with scene(root) as lent, contextlib.AsyncExitStack() as stack:
        attackers = []
        for _ in range(4):
            connection = await stack.enter_async_context(connected(lent.attacker))
            attackers += [await hose(connection) for _ in range(4)]
        lease = lent.plane._leases[lent.attacker.lease]
        assert lease.waiting.held == 16 * CHANNEL_BYTES <= MAX_LEASE_BYTES
        # What a request may be is less than any window, or it could never come.
        big = on_handle(6, b"12345678", struct.pack(">Q", 0) + string(bytes(MAX_PACKET - 64)))
        for _ in range(3):
            for one in attackers:
                answers = one.answers
                one.send(big)
                await one.until(answers + 1)


async def test_as_many_leases_as_a_peer_holds_find_room_whatever_the_first_have_used(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows of channels on which much was sent take nothing of what others need to be opened."""
    monkeypatch.setattr(receive_window, "GROW_SECONDS", float("inf"))  # however busy the machine is
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with scene(root) as lent, contextlib.AsyncExitStack() as stack:
        plane = lent.plane
        windows = []
        for number in range(MAX_PEER_BYTES // CHANNEL_BYTES):
            lease = f"dlg_more{number}"
            (root / lease).mkdir()
            plane.open(export(root / lease, key, lease_id=lease, peer="mallory"))
            one = await hose(await stack.enter_async_context(connected(replace(lent.attacker, lease=lease, key=key))))
            opened = await one.ask(3, string(W + b"written") + struct.pack(">II", 2 | 8, 0))
            write = on_handle(6, opened.handle, struct.pack(">Q", 0) + string(bytes(65_536)))
            one.send(write * 60)
            await one.until(one.answers + 60)
            windows.append(windows_of(connections_of(lent, lease)))
        assert len(windows) == 64
        assert windows[0] == MOST_WINDOW
        room = plane._of_peers["mallory"].room
        assert 0 < room.held <= room.limit
    assert room.held == room.windows == 0


async def test_what_waits_is_given_back_when_it_is_read(root: Path) -> None:
    async with scene(root) as lent, connected(lent.attacker) as connection:
        attacker = await hose(connection)
        opened = await attacker.ask(3, string(W + b"file") + struct.pack(">II", 1, 0))
        channel = attacker.channel
        assert channel is not None
        lenders_side = connections_of(lent, lent.attacker.lease)
        channel.pause_reading()
        attacker.send(on_handle(5, opened.handle, struct.pack(">QI", 0, 255_000)) * 60)
        answers = attacker.answers
        attacker.send(path_request(LSTAT, W + b"file") * 100)
        while waiting_in(lenders_side) < 100 * 20:
            await asyncio.sleep(0)
        channel.resume_reading()
        await attacker.until(answers + 160)
        assert waiting_in(lenders_side) == 0


async def test_empty_frames_of_an_archive_make_the_lender_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lender that sends frames of five bytes is held up as one that sends large ones."""
    monkeypatch.setattr(client, "MAX_WAITING_BYTES", 256 * 1024)
    key = asyncssh.generate_private_key("ssh-ed25519")
    crumbs = frame(Frame.DATA) * (MEBIBYTE // 5)
    async with hostile_lender(b"x", key, crumbs) as target, await connect(target, key, 5) as connection:
        channel = await client.ArchiveChannel.open(connection, lambda: None)
        paused, pause = asyncio.Event(), channel._channel.pause_reading

        def pausing() -> None:
            pause()
            paused.set()

        monkeypatch.setattr(channel._channel, "pause_reading", pausing)
        stream = channel.download()
        assert await anext(stream) == b""
        async with asyncio.timeout(30):
            await paused.wait()
        assert b"".join([piece async for piece in stream]) == b"x"
        channel.close()

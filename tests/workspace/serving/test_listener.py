"""The data plane over real connections: who gets in, when a lease ends, and what ends with it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import os
import socket
import struct
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, cast

import asyncssh
import pytest

from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.workspace.export import ExportLimits, LentDirectory
from sublet.workspace.quota import QuotaMet
from sublet.workspace.serving import listener as sftp_listener
from sublet.workspace.serving import sockets, take_up
from sublet.workspace.serving.lease_memory import LeaseMemory, recall
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.serving.login import CIPHERS, MAX_LOGIN_ATTEMPTS
from sublet.workspace.serving.strangers import MAX_STRANGERS_PER_SOURCE
from sublet.workspace.ssh.reverse import ReverseAcceptor, pack_preamble, parse_preamble
from support.sftp_client import Lender, eventually, export, lender, open_channel, string
from support.views import default_rules

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("tuned_or_not")]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with one file."""
    (tmp_path / "file").write_text("content")
    return tmp_path


def descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


async def test_serves_a_lease_to_an_ordinary_sftp_client(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        async with connection.start_sftp_client() as sftp:
            assert sorted(str(name) for name in await sftp.listdir("/")) == [".", "..", "meta", "workspace"]
            async with sftp.open("/workspace/new", "wb") as file:
                await file.write(b"x" * 300_000)
            async with sftp.open("/workspace/new", "rb") as file:
                assert cast(bytes, await file.read()) == b"x" * 300_000
        usage = lent.plane.usage(lent.lease_id)
        assert usage is not None
        assert (usage.bytes_written, usage.bytes_read, usage.connections) == (300_000, 300_000, 1)
        assert usage.touched == {"workspace": {b"new"}}
        assert connection.get_extra_info("send_cipher") in CIPHERS


async def test_only_the_leases_own_key_and_name_get_in(workspace: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    async with lender(workspace) as lent:
        for options in ({"key": other}, {"user": "dlg_" + "f" * 32}, {"user": "root"}, {"user": ""}):
            with pytest.raises(asyncssh.PermissionDenied):
                async with lent.connect(**options):
                    pass
        lent.plane.open(export(workspace, other, lease_id="dlg_" + "b" * 32))
        with pytest.raises(asyncssh.PermissionDenied):
            async with lent.connect(user="dlg_" + "b" * 32):
                pass


async def test_certificates_and_passwords_do_not_get_in(workspace: Path) -> None:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    async with lender(workspace) as lent:
        certificate = authority.generate_user_certificate(lent.key, "anyone")
        for options in (
            {"client_keys": [(authority, certificate)]},
            {"client_keys": None, "password": "guess"},
        ):
            host, port = lent.plane.address
            with pytest.raises((asyncssh.PermissionDenied, ValueError)):
                await asyncssh.connect(
                    host, port, username=lent.lease_id, known_hosts=None, config=None, agent_path=None, **options
                )


async def test_a_guesser_is_cut_off(workspace: Path) -> None:
    keys = [asyncssh.generate_private_key("ssh-ed25519") for _ in range(MAX_LOGIN_ATTEMPTS + 2)]
    async with lender(workspace) as lent:
        host, port = lent.plane.address
        with pytest.raises((asyncssh.Error, ConnectionError)) as caught:
            await asyncssh.connect(
                host, port, username=lent.lease_id, client_keys=[*keys, lent.key], known_hosts=None, config=None,
                agent_path=None,
            )  # fmt: skip
        assert not isinstance(caught.value, asyncssh.PermissionDenied)


async def test_only_gcm_ciphers_are_offered(workspace: Path) -> None:
    async with lender(workspace) as lent:
        with pytest.raises(asyncssh.KeyExchangeFailed):
            async with lent.connect(encryption_algs=["chacha20-poly1305@openssh.com", "aes256-ctr"]):
                pass


async def test_nothing_but_sftp_is_served(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        for start in (
            connection.run("id"),
            connection.create_process(),
            connection.create_process(term_type="xterm"),
            connection.create_session(asyncssh.SSHClientSession, subsystem="shell"),
            connection.open_connection("127.0.0.1", lent.plane.address[1]),
            connection.open_unix_connection("/tmp/x"),
            connection.start_server(lambda *_: None, "127.0.0.1", 0),
        ):
            with pytest.raises((asyncssh.Error, asyncssh.ChannelListenError, OSError)):
                await start
        channel = await open_channel(connection)
        assert (await channel.ask(7, string(b"/"))).kind == 105


async def test_revoking_cuts_sessions_and_handles_within_the_call(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as first, lent.connect() as second:
        channels = [await open_channel(c) for c in (first, first, second)]
        for channel in channels:
            assert (await channel.open(b"/workspace/file", 3)).kind == 102
            assert (await channel.ask(11, string(b"/workspace"))).kind == 102
        before = descriptors()
        usage = lent.plane.revoke(lent.lease_id, "done")
        # six files and directories, each directory twice for its iterator, and the root
        assert descriptors() == before - 10
        assert usage is not None
        assert usage.connections == 2
        for channel in channels:
            with pytest.raises(ConnectionError):
                await channel.session.packet()
        assert lent.plane.revoke(lent.lease_id, "again") is None
        assert lent.plane.usage(lent.lease_id) is None
        with pytest.raises(asyncssh.PermissionDenied):
            async with lent.connect():
                pass


async def test_requests_that_are_in_flight_do_nothing_after_a_revocation(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        for _ in range(50):
            channel.channel.write(b"\0\0\0\x20\x0e\0\0\0\1" + string(b"/workspace/too-late") + b"\0\0\0\0")
        lent.plane.revoke(lent.lease_id, "cancelled")
        await channel.session.closed.wait()
        assert sorted(os.listdir(workspace)) == ["file"]


async def test_a_lease_runs_out_by_itself(workspace: Path) -> None:
    async with lender(workspace, seconds=0.3) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        await channel.session.closed.wait()
        with pytest.raises(asyncssh.PermissionDenied):
            async with lent.connect():
                pass
        usage = lent.plane.usage(lent.lease_id)
        assert usage is not None
        assert lent.plane.revoke(lent.lease_id, "expired") is usage
        assert lent.plane.usage(lent.lease_id) is None


async def test_the_deadline_holds_even_where_its_timer_is_late(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        lease = lent.plane._leases[lent.lease_id]
        lease.deadline = 0.0
        assert (await channel.ask(7, string(b"/workspace"))).status == 6
        with pytest.raises(asyncssh.PermissionDenied):
            async with lent.connect():
                pass
        with pytest.raises(asyncssh.ChannelOpenError):
            await open_channel(connection)
        with pytest.raises(SubletError):
            lent.plane.set_meta(lent.lease_id, "log", b"")


async def test_connections_and_channels_are_capped(workspace: Path) -> None:
    limits = ExportLimits(max_connections=2, max_channels=3)
    async with lender(workspace, limits=limits) as lent, lent.connect() as first, lent.connect():
        with pytest.raises(asyncssh.PermissionDenied):
            async with lent.connect():
                pass
        channels = [await open_channel(first) for _ in range(3)]
        refused = 0
        for _ in range(300):
            try:
                await first.create_session(asyncssh.SSHClientSession, subsystem="sftp", encoding=None)
            except asyncssh.ChannelOpenError:
                refused += 1
        assert refused == 300
        channels[0].channel.write_eof()
        await channels[0].session.closed.wait()
        assert (await (await open_channel(first)).ask(7, string(b"/"))).kind == 105


async def test_handles_are_capped_for_the_lease_as_a_whole(workspace: Path) -> None:
    async with lender(workspace, limits=ExportLimits(max_handles=3)) as lent, lent.connect() as connection:
        one, two = await open_channel(connection), await open_channel(connection)
        for channel in (one, two, one):
            assert (await channel.open(b"/workspace/file", 1)).kind == 102
        assert (await two.open(b"/workspace/file", 1)).status == 4
        one.channel.write_eof()
        await one.session.closed.wait()
        assert (await two.open(b"/workspace/file", 1)).kind == 102


@pytest.mark.parametrize("words", [b"", b"SUBLET-", b"SSH-2.0-x\r\n"])
async def test_strangers_are_bounded_and_keep_nobody_out(workspace: Path, words: bytes) -> None:
    async with lender(workspace) as lent:
        callers = [socket.create_connection(lent.plane.address) for _ in range(MAX_STRANGERS_PER_SOURCE)]
        try:
            await eventually(lambda: len(lent.plane._strangers) == MAX_STRANGERS_PER_SOURCE)
            for caller in callers:
                caller.sendall(words)
                caller.settimeout(20)
            async with lent.connect():
                assert len(lent.plane._strangers) == MAX_STRANGERS_PER_SOURCE - 1
                await asyncio.to_thread(_read_to_the_end, callers[0])
                for caller in callers[1:20]:
                    caller.close()
                callers += [socket.create_connection(lent.plane.address) for _ in range(100)]
                await eventually(lambda: len(lent.plane._strangers) == MAX_STRANGERS_PER_SOURCE)
                assert lent.plane._leases[lent.lease_id].connections, "who has logged in is no stranger"
        finally:
            for caller in callers:
                caller.close()
        await eventually(lambda: not lent.plane._strangers)


def _read_to_the_end(caller: socket.socket) -> None:
    with contextlib.suppress(ConnectionError):
        while caller.recv(4096):
            pass


async def test_meta_can_be_updated_while_it_is_read(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        lent.plane.set_meta(lent.lease_id, "log", b"one line\n")
        handle = (await channel.open(b"/meta/log", 1)).handle
        lent.plane.set_meta(lent.lease_id, "log", b"")
        assert (await channel.ask(5, string(handle) + struct.pack(">QI", 0, 99))).data == b"one line\n"
        assert (await channel.ask(7, string(b"/meta/log"))).attrs[1] == 0
    with pytest.raises(SubletError) as caught:
        lent.plane.set_meta(lent.lease_id, "log", b"")
    assert caught.value.code is LocalCode.NOT_FOUND


async def test_what_cannot_be_served_is_refused_at_once(workspace: Path) -> None:
    def lent_as(**paths: Path) -> tuple[LentDirectory, ...]:
        first = LentDirectory("workspace", workspace, "rw", default_rules())
        return (first, *(LentDirectory(name, path, "rw", default_rules()) for name, path in paths.items()))

    async with lender(workspace) as lent:
        before = descriptors()
        refusals: tuple[tuple[dict[str, Any], ErrorCode | LocalCode], ...] = (
            ({}, LocalCode.CONFLICT),
            ({"lease_id": "../x"}, LocalCode.INVALID_ARGUMENT),
            ({"lease_id": "l", "meta": {"a/b": b""}}, LocalCode.INVALID_ARGUMENT),
            ({"lease_id": "l", "resources": lent_as(other=workspace / "missing")}, ErrorCode.WORKSPACE_NOT_FOUND),
            ({"lease_id": "l", "resources": lent_as(other=workspace / "file")}, ErrorCode.WORKSPACE_INVALID),
            ({"lease_id": "l", "resources": lent_as(meta=workspace)}, LocalCode.INVALID_ARGUMENT),
            ({"lease_id": "l", "public_key": "no key"}, LocalCode.INVALID_ARGUMENT),
        )
        for changes, code in refusals:
            with pytest.raises(SubletError) as caught:
                lent.plane.open(dataclasses.replace(export(workspace, lent.key), **changes))
            assert caught.value.code is code
            assert str(workspace) not in str(caught.value)
        assert descriptors() == before


async def test_a_taken_address_is_told(workspace: Path) -> None:
    async with lender(workspace) as lent:
        plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
        with pytest.raises(SubletError) as caught:
            await plane.start(*lent.plane.address)
        assert caught.value.code is LocalCode.UNAVAILABLE


async def test_closing_ends_everything_and_leaves_no_descriptor(workspace: Path) -> None:
    before = descriptors()
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        await channel.open(b"/workspace/file", 1)
        with socket.create_connection(lent.plane.address):
            await eventually(lambda: len(lent.plane._strangers) == 1)
            lent.plane.close()
            await channel.session.closed.wait()
    await eventually(lambda: descriptors() == before)


# reverse connections


async def serve_reverse(lent: Lender, key: asyncssh.SSHKey, user: str) -> asyncssh.SSHClientConnection:
    """Wait as an executor for the lender to dial, and log in over its connection."""
    executor = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    await executor.start("127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(executor.serve())
        try:
            with executor.reverse.expect(lent.lease_id) as expected:
                dialling = group.create_task(lent.plane.dial(*executor.address, lent.lease_id))
                connection = await asyncssh.connect(
                    sock=await expected.wait(10),
                    username=user,
                    client_keys=[key],
                    known_hosts=([asyncssh.import_public_key(lent.plane.host_key_line)], [], []),
                    config=None,
                    agent_path=None,
                )
            await dialling
        finally:
            serving.cancel()
            executor.close()
    return connection


async def test_a_lender_behind_nat_dials_and_serves(workspace: Path) -> None:
    async with lender(workspace) as lent:
        connection = await serve_reverse(lent, lent.key, lent.lease_id)
        channel = await open_channel(connection)
        assert (await channel.ask(7, string(b"/workspace/file"))).kind == 105
        lent.plane.revoke(lent.lease_id, "done")
        await channel.session.closed.wait()
        await connection.wait_closed()


async def test_a_dialled_executor_needs_the_leases_own_key(workspace: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    async with lender(workspace) as lent:
        lent.plane.open(export(workspace, other, lease_id="other"))
        for key, user in ((other, lent.lease_id), (other, "other")):
            with pytest.raises(ExceptionGroup) as caught:
                await serve_reverse(lent, key, user)
            failures = caught.value.exceptions
            assert any(isinstance(f, asyncssh.PermissionDenied) for f in failures)


@pytest.mark.parametrize("ticks", range(6))
async def test_dialling_while_the_data_plane_stops_is_an_ordinary_failure(
    workspace: Path, ticks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, connected, go_on = sockets.connected, asyncio.Event(), asyncio.Event()

    async def connect_slowly(host: str, port: int) -> socket.socket:
        sock = await connect(host, port)
        connected.set()
        await go_on.wait()
        return sock

    monkeypatch.setattr(sftp_listener, "connected", connect_slowly)
    before = descriptors()
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
    await plane.start("127.0.0.1", 0)
    key = asyncssh.generate_private_key("ssh-ed25519")
    plane.open(lent := export(workspace, key))
    with socket.create_server(("127.0.0.1", 0)) as executor:
        port = executor.getsockname()[1]
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(plane.serve())
            # a caller whose connection takes some steps to end
            with socket.create_connection(plane.address):
                await eventually(lambda: len(plane._strangers) == 1)
                dialling = group.create_task(_failure_of(plane.dial("127.0.0.1", port, lent.lease_id)))
                await connected.wait()
                serving.cancel()
                for _ in range(ticks):
                    await asyncio.sleep(0)
                go_on.set()
                assert (await dialling).code is ErrorCode.MOUNT_FAILED
    assert descriptors() == before


async def _failure_of(dialling: Coroutine[Any, Any, None]) -> SubletError:
    with pytest.raises(SubletError) as caught:
        await dialling
    return caught.value


async def test_dialling_tells_why_it_failed(workspace: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
    async with lender(workspace) as lent, lender(workspace) as stranger:
        for host, port, lease_id in (
            ("127.0.0.1", nobody, lent.lease_id),
            (*stranger.plane.address, lent.lease_id),
            (*stranger.plane.address, "unknown"),
        ):
            with pytest.raises(SubletError) as caught:
                await lent.plane.dial(host, port, lease_id)
            assert caught.value.code is ErrorCode.MOUNT_FAILED


async def test_reverse_connections_go_only_to_those_who_expect_them() -> None:
    acceptor = ReverseAcceptor()

    def pair() -> tuple[socket.socket, socket.socket]:
        near, far = socket.socketpair()
        far.settimeout(5)
        return near, far

    near, far = pair()
    acceptor.deliver("nobody", near)
    assert far.recv(1) == b""
    far.close()
    with acceptor.expect("mine") as expected:
        with pytest.raises(SubletError), acceptor.expect("mine"):
            pass
        near, far = pair()
        acceptor.deliver("mine", near)
        second, other = pair()
        acceptor.deliver("mine", second)
        assert other.recv(1) == b""
        other.close()
        taken = await expected.wait(1)
        assert taken is near
    far.close()
    taken.close()
    with acceptor.expect("mine") as expected, pytest.raises(SubletError) as caught:
        await expected.wait(0.01)
    assert caught.value.code is ErrorCode.MOUNT_FAILED
    with acceptor.expect("mine"):
        near, far = pair()
        acceptor.deliver("mine", near)
    assert far.recv(1) == b""
    far.close()


async def test_expectations_are_bounded() -> None:
    acceptor = ReverseAcceptor()
    contexts = [acceptor.expect(f"lease{n}") for n in range(65)]
    for context in contexts[:64]:
        context.__enter__()
    with pytest.raises(SubletError) as caught:
        contexts[64].__enter__()
    assert caught.value.code is LocalCode.UNAVAILABLE
    for context in contexts[:64]:
        context.__exit__(None, None, None)


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param([b"SUBLET-REVERSE unknown\n"], id="unknown"),
        pytest.param([b"SUBLET-REVERSE ../../x\n"], id="no plain name"),
        pytest.param([b"SUBLET-REVERSE " + b"x" * 200], id="too long"),
        pytest.param([b"SUBLET-", b"REVERSE a", b"b\n"], id="in pieces"),
    ],
)
async def test_preambles_that_nobody_expects_are_closed_at_once(workspace: Path, sent: list[bytes]) -> None:
    async with lender(workspace) as lent:
        reader, writer = await asyncio.open_connection(*lent.plane.address)
        for piece in sent:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.03)
        with contextlib.suppress(ConnectionError):
            assert await reader.read(1) == b""
        writer.close()
        await eventually(lambda: len(lent.plane._strangers) == 0)


def test_a_preamble_carries_a_plain_name_only() -> None:
    assert parse_preamble(pack_preamble("dlg_1")) == "dlg_1"
    for line in (b"SUBLET-REVERSE \n", b"SUBLET-REVERSE a", b"SUBLET-REVERSE a b\n", b"SSH-2.0-x\n"):
        assert parse_preamble(line) is None
    for name in ("", "a b", "a\n", "x" * 101, "\udcff"):
        with pytest.raises(ValueError, match="lease id"):
            pack_preamble(name)


async def test_a_quota_that_was_met_is_known_to_the_next_process(workspace: Path, tmp_path: Path) -> None:
    file, told = tmp_path / "memory", list[QuotaMet]()
    limits = ExportLimits(max_files=0)
    async with (
        lender(workspace, limits=limits, memory=LeaseMemory(file), on_quota_met=told.append) as lent,
        lent.connect() as connection,
    ):
        channel = await open_channel(connection)
        for _ in range(2):
            assert (await channel.ask(14, string(b"/workspace/new") + b"\0\0\0\0")).status == 15
    met = QuotaMet("max_files", 0)
    assert told == [met, met]
    assert recall(file).quota.met == met
    assert file.read_bytes().count(b"max_files") == 1
    async with lender(workspace, limits=limits, before=recall(file)) as lent:
        usage = lent.plane.usage(lent.lease_id)
        assert usage is not None
        assert usage.quota.met == met


# leases of an earlier process


async def _answer(plane: DataPlane, key: asyncssh.SSHKey, user: str) -> str:
    """Return what somebody gets who logs in."""
    try:
        connection = await asyncssh.connect(
            *plane.address,
            username=user,
            client_keys=[key],
            known_hosts=([asyncssh.import_public_key(plane.host_key_line)], [], []),
            config=None,
            agent_path=None,
        )
    except asyncssh.PermissionDenied:
        return "refused"
    connection.abort()
    await connection.wait_closed()
    return "let in"


async def test_a_login_for_a_lease_that_is_about_to_be_taken_up_waits_for_it(workspace: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519")
    async with lender(workspace) as lent, asyncio.TaskGroup() as group:
        plane = lent.plane
        plane.take_up.begin()
        asked = {name: group.create_task(_answer(plane, key, name)) for name in ("served", "ended", "unknown")}
        await eventually(lambda: len(plane._strangers) == len(asked))
        await asyncio.sleep(0.2)
        assert not any(asking.done() for asking in asked.values())

        plane.take_up.expect(["served", "ended"])
        assert await asked["unknown"] == "refused"
        assert not asked["served"].done()
        assert not asked["ended"].done()

        plane.open(export(workspace, key, lease_id="served"))
        assert await asked["served"] == "let in"
        assert not asked["ended"].done()
        plane.revoke("ended", "it is over")
        assert await asked["ended"] == "refused"
        assert await _answer(plane, key, "ended") == "refused"


async def test_a_lease_that_is_never_taken_up_is_refused_in_time(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(take_up, "TAKE_UP_SECONDS", 0.2)
    async with lender(workspace) as lent:
        lent.plane.take_up.begin()
        assert await _answer(lent.plane, lent.key, "unknown") == "refused"
        lent.plane.take_up.expect(["known"])
        assert await _answer(lent.plane, lent.key, "known") == "refused"

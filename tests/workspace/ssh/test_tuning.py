"""What makes asyncssh faster: it changes nothing else, and steps aside for whatever is out of the ordinary."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, cast

import asyncssh
import pytest

from sublet.workspace.export import MountTarget
from sublet.workspace.serving.login import CIPHERS, LeaseConnection
from sublet.workspace.ssh import lane as ssh_lane
from sublet.workspace.ssh import tuning as ssh_tuning
from sublet.workspace.ssh.connection import connect
from sublet.workspace.ssh.lane import FastLane
from sublet.workspace.ssh.tuning import ChannelPort, port_of, tune
from support.sftp_client import INIT, Lender, RawChannel, RawSession, frame, lender, open_channel, string

pytestmark = pytest.mark.anyio

needs_tuned_version = pytest.mark.skipif(
    asyncssh.__version__ != ssh_tuning.TUNED_VERSION, reason="this version of asyncssh is not tuned"
)
DATA = 94
CONTENT = b"".join(number.to_bytes(4, "big") for number in range(75_000))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "file").write_bytes(CONTENT)
    return tmp_path


class Client(asyncssh.SSHClient):
    """A client that is tuned where that is possible."""

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.tuned = tune(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = exc


def serving(lent: Lender) -> Any:
    """Return the server's end of the only connection."""
    (connection,) = lent.plane._leases[lent.lease_id].connections
    return cast(LeaseConnection, connection)._connection


def serving_channel(lent: Lender) -> Any:
    """Return the server's end of the only channel."""
    (channel,) = serving(lent)._channels.values()
    return channel


def lane_of(connection: Any) -> object:
    return connection.get_extra_info("sublet_lane")


async def copy_both_ways(connection: asyncssh.SSHClientConnection, workspace: Path) -> None:
    """Read the file and write it anew, and make sure that every byte arrives."""
    async with connection.start_sftp_client() as sftp:
        async with sftp.open("/workspace/file", "rb") as file:
            assert cast(bytes, await file.read()) == CONTENT
        async with sftp.open("/workspace/new", "wb") as file:
            await file.write(CONTENT)
    assert (workspace / "new").read_bytes() == CONTENT


class Wire:
    """A relay in front of a lender, which forwards in pieces of ``sizes``, and may spoil what passes."""

    def __init__(self, lent: Lender, sizes: Sequence[int] = (1, 20, 3, 65_536, 4, 17, 30_000, 5)) -> None:
        self._lent = lent
        self._sizes = sizes
        self.to_lender: Callable[[bytes], bytes] = lambda data: data
        self.to_client: Callable[[bytes], bytes] = lambda data: data

    @contextlib.asynccontextmanager
    async def connect(self, **options: Any) -> AsyncIterator[asyncssh.SSHClientConnection]:
        """Log in through the relay, tuned where that is possible."""
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        async with server:
            connection = await asyncssh.connect(
                "127.0.0.1",
                server.sockets[0].getsockname()[1],
                username=self._lent.lease_id,
                client_keys=[self._lent.key],
                known_hosts=None,
                config=None,
                agent_path=None,
                client_factory=Client,
                encryption_algs=list(CIPHERS),
                compression_algs=["none"],
                **options,
            )
            try:
                yield connection
            finally:
                connection.abort()
                await connection.wait_closed()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*self._lent.plane.address)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._forward(reader, back, lambda data: self.to_lender(data)))
            group.create_task(self._forward(there, writer, lambda data: self.to_client(data)))

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, spoil: Callable[[bytes], bytes]
    ) -> None:
        sizes = itertools.cycle(self._sizes)
        with contextlib.closing(writer), contextlib.suppress(ConnectionError):
            while data := await reader.read(next(sizes)):
                writer.write(spoil(data))
                await writer.drain()


# when it is used


@needs_tuned_version
async def test_both_ends_are_tuned(workspace: Path) -> None:
    async with lender(workspace) as lent:
        target = MountTarget(*lent.plane.address, lent.lease_id, lent.plane.host_key_line)
        async with await connect(target, lent.key, 5) as connection:
            channel = await open_channel(connection)
            assert (await channel.ask(7, string(b"/workspace/file"))).kind == 105
            for end in (connection, serving(lent)):
                assert isinstance(lane_of(end), FastLane)
                assert end.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (ssh_lane.Connection, "_recv_handler"),
        (ssh_lane.Encryption, "_cipher"),
        (ssh_lane.Cipher, "_iv"),
        (ssh_lane.Channel, "_accept_data"),
    ],
)
async def test_where_a_private_part_is_missing_asyncssh_is_used_as_it_is(
    workspace: Path, parts: type, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert name in parts.__annotations__
    monkeypatch.setitem(parts.__annotations__, "_renamed", "object")
    ssh_tuning._ciphers_fit.cache_clear()
    try:
        async with lender(workspace) as lent, lent.connect(client_factory=Client) as connection:
            await copy_both_ways(connection, workspace)
            if parts is not ssh_lane.Channel:
                assert lane_of(serving(lent)) is None
    finally:
        ssh_tuning._ciphers_fit.cache_clear()


@pytest.mark.parametrize(
    "options",
    [
        {"encryption_algs": ["aes128-gcm@openssh.com", "aes128-ctr"], "compression_algs": ["none"]},
        {"encryption_algs": list(CIPHERS), "compression_algs": ["none", "zlib@openssh.com"]},
    ],
)
async def test_with_other_algorithms_on_offer_asyncssh_is_used_as_it_is(
    workspace: Path, options: dict[str, Any]
) -> None:
    async with lender(workspace) as lent, lent.connect(client_factory=Client, **options) as connection:
        assert lane_of(connection) is None
        await copy_both_ways(connection, workspace)


# that it changes nothing but the speed


@pytest.mark.usefixtures("tuned_or_not")
async def test_packets_that_come_in_pieces_and_in_crowds_arrive_whole(workspace: Path) -> None:
    async with lender(workspace) as lent, Wire(lent).connect() as connection:
        await copy_both_ways(connection, workspace)


@pytest.mark.parametrize("who", ["client", "lender"])
async def test_keys_are_exchanged_again_in_the_middle_of_everything(
    workspace: Path, who: str, tuned_or_not: bool
) -> None:
    async with lender(workspace) as lent, Wire(lent).connect() as connection:
        rekeying = cast(Any, connection) if who == "client" else serving(lent)
        exchanges = 0
        send_newkeys = rekeying.send_newkeys

        def count(*arguments: bytes) -> None:
            nonlocal exchanges
            exchanges += 1
            send_newkeys(*arguments)

        rekeying.send_newkeys = count
        rekeying._rekey_bytes = 50_000
        for _ in range(4):
            await copy_both_ways(connection, workspace)
        assert exchanges >= 3
        # every packet of data calls for new keys on its own, without any help of asyncssh's other packets
        channel = await open_channel(connection)
        exchanges, rekeying._rekey_bytes = 0, 1
        for _ in range(3):
            assert (await channel.ask(7, string(b"/workspace/file"))).kind == 105
        assert exchanges >= 3
        rekeying._rekey_bytes = 1 << 30
        for _ in range(3):
            assert (await channel.ask(7, string(b"/workspace/file"))).kind == 105
        if tuned_or_not:
            for end in (cast(Any, connection), serving(lent)):
                lane = cast(Any, lane_of(end))
                assert lane._receiving.encryption is end._recv_encryption
                assert lane._sending.encryption is end._send_encryption


@pytest.mark.usefixtures("tuned_or_not")
async def test_the_counter_of_packets_goes_around(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect(client_factory=Client) as connection:
        client, server = cast(Any, connection), serving(lent)
        for cipher in (
            client._send_encryption._cipher, server._recv_encryption._cipher,
            server._send_encryption._cipher, client._recv_encryption._cipher,
        ):  # fmt: skip
            cipher._iv = cipher._iv[:4] + b"\xff" * 7 + b"\xfd"
        await copy_both_ways(connection, workspace)


@pytest.mark.usefixtures("tuned_or_not")
@pytest.mark.parametrize("window", [1, 1000, 70_000])
async def test_no_more_is_sent_than_the_window_lets(workspace: Path, window: int) -> None:
    async with lender(workspace) as lent, lent.connect(client_factory=Client) as connection:
        channel = await open_channel(connection, window=window)
        handle = (await channel.open(b"/workspace/file", 1)).handle
        for offset in range(0, 3000 if window == 1 else len(CONTENT), 60_000):
            size = 1000 if window == 1 else 60_000
            answer = await channel.ask(5, string(handle) + struct.pack(">QI", offset, size))
            assert answer.data == CONTENT[offset : offset + size]


@pytest.mark.usefixtures("tuned_or_not")
async def test_packets_may_be_large(workspace: Path) -> None:
    async with lender(workspace) as lent, Wire(lent).connect() as connection:
        channel, session = await connection.create_session(
            RawSession, subsystem="sftp", encoding=None, max_pktsize=200_000
        )
        raw = RawChannel(channel, cast(RawSession, session))
        channel.write(INIT)
        await raw.session.packet()
        handle = (await raw.open(b"/workspace/file", 1)).handle
        for offset in (0, 100_000):
            answer = await raw.ask(5, string(handle) + struct.pack(">QI", offset, 180_000))
            assert answer.data == CONTENT[offset : offset + 180_000]


# what is out of the ordinary


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.usefixtures("tuned_or_not")
async def test_a_forged_packet_ends_the_connection(workspace: Path) -> None:
    async with lender(workspace) as lent:
        for direction in ("to_lender", "to_client"):
            wire = Wire(lent, [65_536])
            async with wire.connect() as connection:
                channel = await open_channel(connection)
                assert (await channel.ask(7, string(b"/workspace/file"))).kind == 105
                setattr(wire, direction, flip)
                with pytest.raises(ConnectionError):
                    await channel.ask(7, string(b"/workspace/file"))
                await connection.wait_closed()
        async with lent.connect() as connection:
            await copy_both_ways(connection, workspace)


@pytest.mark.usefixtures("tuned_or_not")
@pytest.mark.parametrize("size", [0, 1, 11, 256 * 1024 + 1, 0xFFFFFFFF])
async def test_an_impossible_length_ends_the_connection(workspace: Path, size: int) -> None:
    async with lender(workspace) as lent, lent.connect(client_factory=Client) as connection:
        channel = await open_channel(connection)
        cast(Any, connection)._transport.write(struct.pack(">I", size) + b"x" * 64)
        await channel.session.closed.wait()


@pytest.mark.usefixtures("tuned_or_not")
@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(lambda number: struct.pack(">II", number, 9) + b"short", id="data that is shorter than it says"),
        pytest.param(lambda number: struct.pack(">II", number, 3) + b"longer", id="data that is longer than it says"),
        pytest.param(lambda number: struct.pack(">II", number, 0xFFFFFFFF), id="data without end"),
        pytest.param(lambda number: struct.pack(">II", number + 1, 1) + b"x", id="no such channel"),
        pytest.param(lambda number: b"", id="nothing"),
    ],
)
async def test_data_that_is_no_data_ends_the_connection(workspace: Path, payload: Callable[[int], bytes]) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        connection.send_packet(DATA, payload(serving_channel(lent)._recv_chan))
        await channel.session.closed.wait()
        assert lent.plane.usage(lent.lease_id) is not None


@pytest.mark.usefixtures("tuned_or_not")
async def test_data_beyond_the_window_ends_the_connection(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect(client_factory=Client) as connection:
        channel = await open_channel(connection)
        serving_channel(lent)._recv_window = 10
        channel.channel.write(frame(7, 1, string(b"/workspace/file")))
        await channel.session.closed.wait()


@pytest.mark.usefixtures("tuned_or_not")
async def test_data_after_the_end_ends_the_connection(workspace: Path) -> None:
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        server = serving_channel(lent)
        number = server._recv_chan
        channel.channel.write_eof()
        connection.send_packet(DATA, struct.pack(">II", number, 1) + b"x")
        await connection.wait_closed()


@needs_tuned_version
async def test_a_session_that_breaks_ends_its_connection_alone(workspace: Path) -> None:
    class Broken(RawSession):
        def data_received(self, data: bytes, datatype: int | None) -> None:
            raise ZeroDivisionError

    async with lender(workspace) as lent, lent.connect(client_factory=Client) as connection:
        channel, _ = await connection.create_session(Broken, subsystem="sftp", encoding=None)
        channel.write(INIT)
        await connection.wait_closed()
        async with lent.connect() as other:
            await copy_both_ways(other, workspace)


class Written:
    """A transport that notes what is written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self._transport.write(data)


@needs_tuned_version
async def test_what_is_asked_together_is_answered_together(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # However busy the machine is, all of it is done in one turn.
    monkeypatch.setattr("sublet.workspace.ssh.turns.SLICE_SECONDS", 60.0)
    async with lender(workspace) as lent, lent.connect() as connection:
        channel = await open_channel(connection)
        server = serving(lent)
        written = cast(Any, lane_of(server))._transport = Written(server._transport)
        channel.channel.write(b"".join(frame(7, number, string(b"/workspace/file")) for number in range(100)))
        for _ in range(100):
            assert (await channel.session.packet())[4] == 105
        # One for each turn that the connection gets, however many it needs on a busy machine; by itself one an answer.
        assert len(written.pieces) < 20


@needs_tuned_version
async def test_a_session_may_wait_for_all_that_arrives_together(workspace: Path) -> None:
    called: list[str] = []

    class Waiting(RawSession):
        port: ChannelPort

        def data_received(self, data: bytes, datatype: int | None) -> None:
            super().data_received(data, datatype)
            self.port.at_batch_end(lambda: called.append("end"))
            called.append("data")

    algorithms: dict[str, Any] = {"encryption_algs": list(CIPHERS), "compression_algs": ["none"]}
    async with lender(workspace) as lent, lent.connect(client_factory=Client, **algorithms) as connection:
        channel, session = await connection.create_session(Waiting, subsystem="sftp", encoding=None)
        waiting = cast(Waiting, session)
        waiting.port = port_of(channel)
        waiting.port.at_batch_end(lambda: called.append("now"))
        waiting.port.write(memoryview(INIT))
        await waiting.packet()
        assert called == ["now", "data", "end"]

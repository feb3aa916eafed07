"""Probes of the SFTP port, the archive transport and the executor's mount."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import anyio
import asyncssh

from attacks.kit.executor import LSTAT, OPENDIR, connected, hose, path_request
from attacks.kit.lease import opened
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from attacks.scenes import scene
from sublet.protocol.errors import SubletError
from sublet.workspace.archive import tar_format, tar_reader
from sublet.workspace.archive.tar_format import Entry, MalformedTar, TarLimits, header
from sublet.workspace.archive.tar_reader import TarReader
from sublet.workspace.archive.upload import Upload
from sublet.workspace.archive.wire import Frame, Frames, MalformedFrame, Planned, plan_frames, read_plan
from sublet.workspace.archive.wire import frame as archive_frame
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.mount import point
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.mount.relay import LinkViolation, SftpRelay
from sublet.workspace.mount.table import is_mounted
from sublet.workspace.quota import Quota
from sublet.workspace.serving.input_feed import InputFeed
from sublet.workspace.serving.lease_memory import LeaseMemory, recall
from sublet.workspace.serving.served_lease import MAX_GROWN_BYTES
from sublet.workspace.serving.slow_work import SlowWork
from sublet.workspace.sftp.handles import Listing
from sublet.workspace.ssh.keys import read_public_key
from sublet.workspace.ssh.receive_window import LEAST_WINDOW, ReceiveWindow
from sublet.workspace.ssh.reverse import parse_preamble
from sublet.workspace.ssh.turns import Turns
from sublet.workspace.view import rules
from sublet.workspace.viewpath import link_stays, split
from support.noise import noise
from support.sftp_client import INIT, export, frame, next_reply, string
from support.views import default_rules

W = b"/workspace/"
MEBIBYTE = 1 << 20


class _Sink:
    def begin(self, entry: Entry) -> None:
        """Take nothing."""

    def data(self, piece: memoryview) -> None:
        """Take nothing."""

    def end(self) -> None:
        """Take nothing."""


# cost


def _answer_all(asked: bytes) -> None:
    """Hand ``asked`` to a session and take all of its answers."""
    with opened() as served:
        core = served.client.core
        core.receive(asked)
        while (reply := next_reply(core)) is not None:
            if not isinstance(reply, bytes):
                reply.answer()


def _in_crumbs(asked: bytes) -> None:
    with opened() as served:
        for byte in asked:
            served.client.core.receive(bytes((byte,)))
            next_reply(served.client.core)


def _refused(call: Callable[[Any], object], *errors: type[Exception]) -> Callable[[Any], None]:
    def run(made: Any) -> None:
        with contextlib.suppress(*errors):
            call(made)

    return run


def _frames(data: bytes) -> None:
    frames = Frames()
    for start in range(0, len(data), 64):
        for _ in frames.receive(data[start : start + 64]):
            pass


def _tar(data: bytes) -> None:
    TarReader(_Sink(), TarLimits(1 << 30, 1 << 50, 1 << 50)).feed(data)


def _entries(size: int) -> bytes:
    return b"".join(header(Entry((b"d", b"%d" % number), "directory")) for number in range(size // tar_format.BLOCK))


def _attributes(size: int) -> bytes:
    record = b"30 path=" + b"x" * 21 + b"\n"
    return record * (size // len(record) + 1)


def _relay_answers(pieces: list[bytes]) -> None:
    relay = SftpRelay()
    relay.from_client(memoryview(INIT))
    relay.from_server([b"\0\0\0\5\2\0\0\0\3"])
    for number in range(len(pieces)):
        relay.from_client(memoryview(struct.pack(">IBI", 9, OPENDIR, number) + string(b"")))
    relay.from_server(pieces)


def _relay_requests(requests: bytes) -> None:
    relay = SftpRelay()
    relay.from_client(memoryview(INIT))
    relay.from_server([b"\0\0\0\5\2\0\0\0\3"])
    relay.from_client(memoryview(requests))


def _lend_names(names: int) -> tuple[Path, tempfile.TemporaryDirectory[str]]:
    folder = tempfile.TemporaryDirectory()
    root = Path(folder.name).resolve()
    (root / "low" / "large").mkdir(parents=True)
    for number in range(names):
        (root / "low" / "large" / f"{number}").touch()
    return root, folder


def _moved(made: tuple[Path, tempfile.TemporaryDirectory[str]]) -> None:
    """Move a directory of names up, for which it is walked through."""
    tree = WritableFs(ConfinedFs.open_root(made[0]), default_rules(), Quota(), lambda _: None)
    try:
        tree.rename((b"low", b"large"), (b"large",), replace=False)
    finally:
        tree.close()
        made[1].cleanup()


def _listed(made: tuple[Path, tempfile.TemporaryDirectory[str]]) -> None:
    """List a directory of names."""
    tree = ConfinedFs(ConfinedFs.open_root(made[0]), default_rules(), Quota())
    listing = Listing(tree.open_directory((b"low", b"large")))
    try:
        for _ in listing.next_entries(1 << 30):
            pass
    finally:
        listing.close()
        tree.close()
        made[1].cleanup()


class _Once:
    def work(self) -> None:
        """Be done."""


def _turns(count: int) -> None:
    async def run() -> None:
        turns = Turns()
        for number in range(count // 256):
            turns.ask("peer", "lease", _Once()) if number % 2 else turns.ask("other", "lease", _Once())
        while turns.waiting:
            await asyncio.sleep(0)

    asyncio.run(run())


COSTS = (
    CostProbe(
        name="sftp: many requests",
        covers=(
            "workspace.sftp.core:SftpCore.has_request",
            "workspace.confined.fs:ConfinedFs.lstat",
        ),
        make=lambda size: path_request(LSTAT, W + b"absent") * (size // 30),
        run=_answer_all,
    ),
    CostProbe(
        name="sftp: requests byte by byte",
        covers=("workspace.sftp.core:SftpCore.receive",),
        make=lambda size: path_request(LSTAT, W + b"x" * 2000) * (size // 2000),
        run=_in_crumbs,
    ),
    CostProbe(
        name="sftp: a path of many components",
        covers=("workspace.viewpath:split", "workspace.viewpath:_plain", "workspace.viewpath:link_stays"),
        make=lambda size: b"/./x" * (size // 4),
        run=_refused(lambda path: (link_stays(9, path[1:]), split(path)), OSError),
    ),
    CostProbe(
        name="sftp: attributes without end",
        covers=("workspace.sftp.wire:Reader.attributes",),
        make=lambda size: frame(9, 1, string(W) + struct.pack(">II", 0x80000000, size // 8) + bytes(size)),
        run=_answer_all,
        most=256 << 10,
    ),
    CostProbe(
        name="sftp: moving a directory of many names",
        covers=(
            "workspace.confined.move:check_move",
            "workspace.confined.held:HeldBelow._list",
            "workspace.confined.held:HeldBelow._look",
            "workspace.confined.moving:MovingFs.rename",
        ),
        make=lambda size: _lend_names(size // 16),
        run=_moved,
    ),
    CostProbe(
        name="sftp: listing many names",
        covers=("workspace.sftp.handles:Listing.next_entries", "workspace.confined.handles:Directory.__next__"),
        make=lambda size: _lend_names(size // 16),
        run=_listed,
    ),
    CostProbe(
        name="sftp: many that wait for a turn",
        covers=("workspace.ssh.turns:Turns._turn", "workspace.ssh.turns:Turns.ask"),
        make=lambda size: size,
        run=_turns,
        size=65536,
    ),
    CostProbe(
        name="sftp: a public key line",
        covers=("workspace.ssh.keys:module", "workspace.ssh.keys:read_public_key"),
        make=lambda size: "ssh-ed25519 " + "A" * size,
        run=_refused(read_public_key, ValueError),
    ),
    CostProbe(
        name="sftp: a reverse preamble",
        covers=("workspace.ssh.reverse:module", "workspace.ssh.reverse:parse_preamble"),
        make=lambda size: b"SUBLET-REVERSE " + b"x" * size + b"\n",
        run=parse_preamble,
    ),
    CostProbe(
        name="archive: tiny frames",
        covers=("workspace.archive.wire:Frames.receive", "workspace.archive.wire:Frames.next"),
        make=lambda size: archive_frame(Frame.DATA) * (size // 5),
        run=_frames,
    ),
    CostProbe(
        name="archive: a plan",
        covers=("workspace.archive.wire:read_plan", "workspace.archive.tar_format:checked_parts"),
        make=lambda size: b"".join(
            piece[5:] for piece in plan_frames(Planned((b"d", b"%d" % n), "file") for n in range(size // 16))
        ),
        run=_refused(lambda plan: list(read_plan(plan)), MalformedFrame),
    ),
    CostProbe(
        name="archive: a tar stream",
        covers=("workspace.archive.tar_reader:TarReader.feed", "workspace.archive.tar_reader:TarReader.__init__"),
        make=_entries,
        run=_refused(_tar, MalformedTar),
        size=65536,
    ),
    CostProbe(
        name="archive: attributes of an entry",
        covers=("workspace.archive.tar_reader:_attributes",),
        make=_attributes,
        run=_refused(tar_reader._attributes, MalformedTar),
    ),
    CostProbe(
        name="mount: answers of a lender",
        covers=("workspace.mount.relay:SftpRelay.from_server", "workspace.mount.relay:SftpRelay._given"),
        make=lambda size: [frame(102, n, string(b"same" if n % 2 else b"%d" % n)) for n in range(size // 21)],
        run=_refused(_relay_answers, LinkViolation),
    ),
    CostProbe(
        name="mount: requests of programs",
        covers=("workspace.mount.relay:SftpRelay.from_client",),
        make=lambda size: b"".join(struct.pack(">IBI", 9, LSTAT, n) + string(b"") for n in range(size // 13)),
        run=_relay_requests,
    ),
)


# kept


@contextmanager
def _names_asked_for() -> Iterator[object]:
    with patch.object(rules, "MAX_CACHED_BYTES", MEBIBYTE // 2), opened() as served:
        for number in range(3_000):
            served.client.ask(LSTAT, string(W + b"%06d" % number + b"x" * 230 + b".env"))
        for number in range(8):
            served.client.ask(LSTAT, string(W + b"%d" % number + b"x" * 250_000))
        yield None


@contextmanager
def _paths_changed() -> Iterator[object]:
    with opened() as served:
        for number in range(3_000):
            served.lease._touch("workspace", served.lease.usage.touched["workspace"], (b"%d" % number, b"x" * 3900))
        yield None


@contextmanager
def _handles_held() -> Iterator[object]:
    with opened() as served:
        for _ in range(3_000):
            served.client.ask(OPENDIR, string(b"/workspace"))
        (served.root / "file").touch()
        for _ in range(3_000):
            served.client.ask(3, string(W + b"file") + struct.pack(">II", 1, 0))
        yield None


@contextmanager
def _beginnings_of_requests() -> Iterator[object]:
    with opened() as served:
        cores = [served.lease.new_session() for _ in range(16)]
        for core in cores:
            core.receive(INIT)
            next_reply(core)
            for _ in range(255):
                core.receive(struct.pack(">I", 260 * 1024) if core._received == 0 else b"x" * 1024)
                next_reply(core)
        yield None
        for core in cores:
            core.close()


class _Channel:
    """Takes leave to send more, and no note of it."""

    _init_recv_window = _recv_window = LEAST_WINDOW

    def is_closing(self) -> bool:
        """Stay open."""
        return False

    def send_packet(self, kind: int, size: bytes) -> None:
        """Take it."""


@contextmanager
def _windows_filled() -> Iterator[object]:
    """Have the windows of as many channels as a lease may open grow, and fill them."""
    with opened() as served:
        windows = [ReceiveWindow(cast(Any, _Channel()), served.lease.room) for _ in range(16)]
        cores = [served.lease.new_session() for _ in windows]
        for _ in range(8):
            for window in windows:
                window.delivered(window.size)
                window.open_for(0)
        for core, window in zip(cores, windows, strict=True):
            core.receive(b"x" * window.size)
        yield None
        for core, window in zip(cores, windows, strict=True):
            core.close()
            window.close()
        assert served.lease.room.held == 0


@contextmanager
def _plan_announced() -> Iterator[object]:
    with opened(transport="archive") as served:
        upload = served.lease.transfers.upload()
        assert isinstance(upload, Upload)
        names = ((b"workspace", b"%06d" % number, b"x" * 240, *(b"y" * 250,) * 13) for number in range(12_000))
        with contextlib.suppress(MalformedFrame):
            for piece in plan_frames(Planned(name, kind) for name in names for kind in ("deleted", "directory")):
                upload.plan(piece[5:])
        yield None
        upload.close()


@contextmanager
def _tar_headers_read() -> Iterator[object]:
    reader = TarReader(_Sink(), TarLimits(100_000, 1 << 30, 1 << 30), unique=True)
    with contextlib.suppress(MalformedTar):
        for number in range(1_500):
            reader.feed(header(Entry((b"d", b"%d" % number, *(b"x" * 250,) * 6), "directory")))
    yield None
    del reader


KEPT = (
    KeptProbe(
        name="sftp: names that are asked for",
        covers=("workspace.view.rules:Rules.__init__", "workspace.view.rules:Rules._name"),
        attack=_names_asked_for,
        bound=MEBIBYTE,
    ),
    KeptProbe(
        name="sftp: long paths that are changed",
        covers=("workspace.serving.served_lease:ServedLease._touch",),
        attack=_paths_changed,
        bound=8 * MEBIBYTE,
    ),
    KeptProbe(
        name="sftp: windows of channels",
        covers=("workspace.ssh.receive_window:ReceiveWindow.open_for", "workspace.ssh.receive_window:WindowRoom.take"),
        attack=_windows_filled,
        bound=MAX_GROWN_BYTES + 16 * LEAST_WINDOW + MEBIBYTE,
    ),
    KeptProbe(
        name="sftp: handles",
        covers=("workspace.sftp.handles:Handles.add", "workspace.sftp.handles:Handles.make_room"),
        attack=_handles_held,
        bound=4 * MEBIBYTE,
    ),
    KeptProbe(
        name="sftp: requests that do not end",
        covers=("workspace.sftp.core:SftpCore.receive", "workspace.sftp.core:SftpCore.close"),
        attack=_beginnings_of_requests,
        bound=16 * MEBIBYTE,
    ),
    KeptProbe(
        name="archive: a plan of long names",
        covers=("workspace.archive.upload:_Plan.add", "workspace.serving.served_transfers:LeaseTransfers.upload"),
        attack=_plan_announced,
        bound=64 * MEBIBYTE,
    ),
    KeptProbe(
        name="archive: headers of long names",
        covers=("workspace.archive.tar_reader:TarReader._count",),
        attack=_tar_headers_read,
        bound=8 * MEBIBYTE,
    ),
)


# failures


async def _a_turn_breaks() -> None:
    turns, done = Turns(), asyncio.Event()

    class Breaks:
        def work(self) -> None:
            raise RuntimeError("broken")

    class Works:
        def work(self) -> None:
            done.set()

    turns.ask("one", "lease", Breaks())
    turns.ask("two", "lease", Works())
    await done.wait()


async def _a_connection_breaks() -> None:
    """Whatever a caller's bytes bring asyncssh to raise, others are served."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "honest").mkdir()
        async with scene(Path(name).resolve()) as lent:
            sock = socket.socket()
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(sock, lent.plane.address)
            await loop.sock_sendall(sock, b"SSH-2.0-\xff\xfe\r\n" + bytes(4096))
            with contextlib.suppress(ConnectionError):
                while await loop.sock_recv(sock, 65536):
                    pass
            sock.close()
            async with connected(lent.honest) as connection:
                assert (await (await hose(connection)).ask(LSTAT, string(b"/workspace"))).kind == 105


async def _a_dialled_executor_breaks() -> None:
    """An executor that was dialled answers with nonsense: its own lease is told, and others are served."""

    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-\xff\xfe\r\n" + bytes(4096))
        await reader.read()
        writer.close()

    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "honest").mkdir()
        server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
        async with server, scene(Path(name).resolve()) as lent:
            host, port = server.sockets[0].getsockname()
            try:
                await lent.plane.dial(host, port, lent.attacker.lease)
            except SubletError:
                async with connected(lent.honest) as connection:
                    assert (await (await hose(connection)).ask(LSTAT, string(b"/workspace"))).kind == 105
                return
            raise AssertionError("nonsense was taken for a login")


async def _no_descriptor_is_left() -> None:
    """A connection that can't be accepted ends nothing: the next one is."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "honest").mkdir()
        async with scene(Path(name).resolve()) as lent:
            loop = asyncio.get_running_loop()
            accept, failed = loop.sock_accept, itertools.count()

            async def refusing(sock: socket.socket) -> Any:
                accepted, address = await accept(sock)
                if next(failed) == 0:
                    accepted.close()
                    raise OSError(24, "Too many open files")
                return accepted, address

            loop.sock_accept = refusing  # type: ignore[method-assign]
            for _ in range(3):
                with contextlib.suppress(OSError, asyncssh.Error):
                    async with connected(lent.honest) as connection:
                        await hose(connection)
                        return
            raise AssertionError("nobody is served any more")


async def _slow_work_fails() -> None:
    slow = SlowWork().one_by_one()
    loop = asyncio.get_running_loop()

    def breaks() -> None:
        raise OSError(5, "broken")

    first, second = loop.run_in_executor(slow, breaks), loop.run_in_executor(slow, int)
    with contextlib.suppress(OSError):
        await first
    assert await second == 0


async def _a_feed_is_cut() -> None:
    """What waits for its turn is dropped with its connection."""
    given: list[bytes] = []

    class Transport:
        closing = False

        def is_closing(self) -> bool:
            return self.closing

        def pause_reading(self) -> None:
            """Nothing is read."""

        def resume_reading(self) -> None:
            """Nothing is read."""

    class Connection:
        _transport = Transport()

    turns = Turns()
    feed = InputFeed(given.append, turns.share("a", "b", at_once=False), lambda: None)
    receive = feed.receiver(Connection(), lambda _: True)  # type: ignore[arg-type]
    receive(bytes(1 << 20))
    assert not given
    Connection._transport.closing = True
    while turns.waiting:
        await asyncio.sleep(0)
    assert not given


async def _memory_is_garbage() -> None:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "memory"
        file.write_bytes(noise(4096))
        assert recall(file).touched_overflow
        assert recall(Path(name)).touched_overflow
        memory = LeaseMemory(Path(name))
        assert not memory.touch("workspace", b"path")
        memory.close()


async def _leftovers_stay() -> None:
    """A mount root with names that can't be removed: the start goes on, and says what it removed."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve() / "mounts"
        mounts = Mounts(root)
        mounts.reserve("dlg_1")
        (mounts.reserve("dlg_2") / "file").touch()
        (root / "link").symlink_to("/")
        os.mkfifo(root / "fifo")
        assert await asyncio.to_thread(mounts.reap) == ["dlg_1"]
        assert not is_mounted(root / "dlg_1")
        with contextlib.suppress(SubletError):
            point.MountPoint(root / "link", root)
        descriptor = os.open(root, os.O_RDONLY)
        assert not point.remove_empty("fifo", descriptor)
        os.close(descriptor)


async def _a_lease_is_gone() -> None:
    """A directory that is not there refuses its lease and no other."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "honest").mkdir()
        async with scene(Path(name).resolve()) as lent:
            key = asyncssh.generate_private_key("ssh-ed25519")
            with contextlib.suppress(SubletError):
                lent.plane.open(export(Path(name) / "absent", key, lease_id="dlg_absent"))
            with anyio.fail_after(30):
                async with connected(lent.honest) as connection:
                    assert (await (await hose(connection)).ask(LSTAT, string(b"/workspace"))).kind == 105


FAILURES = (
    FailureProbe(name="sftp: a turn breaks", covers=("workspace.ssh.turns:Turns._turn",), throw=_a_turn_breaks),
    FailureProbe(
        name="sftp: a connection breaks",
        covers=(
            "workspace.serving.listener:DataPlane._serve_ssh",
            "workspace.serving.listener:DataPlane._begin_with",
            "workspace.ssh.lane:FastLane._deliver",
            "workspace.ssh.peek:read_preamble",
        ),
        throw=_a_connection_breaks,
    ),
    FailureProbe(
        name="sftp: a dialled executor breaks",
        covers=("workspace.serving.listener:DataPlane._begin",),
        throw=_a_dialled_executor_breaks,
    ),
    FailureProbe(
        name="sftp: no descriptor is left",
        covers=("workspace.serving.listener:DataPlane._accept",),
        throw=_no_descriptor_is_left,
    ),
    FailureProbe(
        name="sftp: slow work fails",
        covers=("workspace.serving.slow_work:_OneByOne.__init__", "workspace.serving.slow_work:_OneByOne._next"),
        throw=_slow_work_fails,
    ),
    FailureProbe(
        name="sftp: a connection is cut while its input waits",
        covers=("workspace.serving.input_feed:InputFeed.work",),
        throw=_a_feed_is_cut,
    ),
    FailureProbe(
        name="sftp: the memory of a lease is garbage",
        covers=(
            "workspace.serving.lease_memory:recall",
            "workspace.serving.lease_memory:LeaseMemory.__init__",
        ),
        throw=_memory_is_garbage,
    ),
    FailureProbe(
        name="sftp: a directory is gone",
        covers=("disk.openat2:open_real", "disk.openat2:walk_beneath"),
        throw=_a_lease_is_gone,
    ),
    FailureProbe(
        name="mount: leftovers that can't be removed",
        covers=(
            "workspace.mount.mounts:Mounts._open_root",
            "workspace.mount.point:MountPoint.__init__",
            "workspace.mount.point:remove_empty",
            "workspace.mount.table:read_table",
            "workspace.mount.table:module",
        ),
        throw=_leftovers_stay,
    ),
)

PROBES: tuple[Probe, ...] = (*COSTS, *KEPT, *FAILURES)

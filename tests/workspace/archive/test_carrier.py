"""Both sides of the archive transport together: our server, our connection, and work in the unpacked view."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import asyncssh
import pytest

from sublet.protocol.errors import SubletError
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.client import ArchiveChannel
from sublet.workspace.archive.tar_format import END, Entry, TarLimits, header
from sublet.workspace.archive.unpacked import UnpackedView
from sublet.workspace.archive.wire import Planned
from sublet.workspace.export import AccessMode, Export, ExportLimits, LeaseUsage, LentDirectory, MountTarget
from sublet.workspace.serving.lease_memory import LeaseMemory, recall
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.serving.login import MAX_BLOCKED_INPUT, LeaseConnection
from sublet.workspace.ssh.connection import connect
from support.noise import noise
from support.sftp_lender import public_line
from support.views import default_rules

pytestmark = pytest.mark.anyio
KEY = asyncssh.generate_private_key("ssh-ed25519")
LEASE = "dlg_" + "a" * 32
UNLIMITED = ExportLimits()
LIMITS = TarLimits(10_000, 1 << 30, 1 << 30)
CUT = "link to the lender was lost|lease is over"


class Lender:
    """A data plane that lends one directory by archive."""

    def __init__(self, project: Path) -> None:
        self.plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"))
        self.project = project
        self.serving: asyncio.Task[None] | None = None

    async def stop(self) -> None:
        """Stop serving, and return once nothing of it goes on."""
        assert self.serving is not None
        self.serving.cancel()
        await asyncio.wait([self.serving])

    def lend(
        self,
        mode: AccessMode = "rw",
        limits: ExportLimits = UNLIMITED,
        memory: LeaseMemory | None = None,
        before: LeaseUsage | None = None,
    ) -> MountTarget:
        self.plane.open(
            Export(
                LEASE,
                (LentDirectory("workspace", self.project, mode, default_rules()),),
                public_line(KEY),
                60,
                {"task.json": b"{}"},
                limits,
                transport="archive",
                memory=memory,
                before=before,
            )
        )
        return MountTarget(*self.plane.address, LEASE, self.plane.host_key_line)


@pytest.fixture
async def lender(tmp_path: Path) -> AsyncIterator[Lender]:
    project = tmp_path / "project"
    project.mkdir()
    side = Lender(project)
    await side.plane.start("127.0.0.1", 0)
    async with asyncio.TaskGroup() as group:
        side.serving = group.create_task(side.plane.serve())
        try:
            yield side
        finally:
            side.serving.cancel()


@pytest.fixture
def carrier(tmp_path: Path) -> ArchiveCarrier:
    return ArchiveCarrier(tmp_path / "work", lambda: LIMITS)


@contextlib.asynccontextmanager
async def attached(
    lender: Lender,
    carrier: ArchiveCarrier,
    mode: AccessMode = "rw",
    limits: ExportLimits = UNLIMITED,
    memory: LeaseMemory | None = None,
) -> AsyncIterator[UnpackedView]:
    async with await connect(lender.lend(mode, limits, memory), KEY, 5) as connection:
        view = await carrier.attach(carrier.reserve(LEASE), connection)
        try:
            yield view
        finally:
            await view.detach(flush=False)


def everything(project: Path) -> None:
    """Fill a directory with all kinds of files."""
    (project / "code.txt").write_text("one\n")
    (project / ".env").write_text("TOKEN=1\n")
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "empty").mkdir()
    (project / "deep" / "er").mkdir(parents=True)
    (project / "deep" / "er" / "file").write_bytes(noise(700_000))
    (project / "deep" / "inside").symlink_to("er/file")
    (project / "absolute").symlink_to("/etc/passwd")
    (project / "upwards").symlink_to("../../elsewhere")
    (project / "first").write_text("linked\n")
    os.link(project / "first", project / "second")
    os.mkfifo(project / "fifo")
    (project / os.fsdecode(b"n\xe4me \n-o")).write_text("odd")
    (project / ("x" * 255)).write_text("long")
    with open(project / "sparse", "wb") as sparse:
        sparse.truncate(5 << 20)
        sparse.seek(3 << 20)
        sparse.write(b"data")
    os.utime(project / "code.txt", ns=(1, 1_234_567_890_123_456_789))
    os.utime(project / "empty", ns=(1, 987_654_321_000_000_001))


def shown(root: Path) -> dict[bytes, object]:
    """Return what a tree holds, with what an archive keeps of it."""
    found: dict[bytes, object] = {}
    top = os.fsencode(root)
    for at, directories, files in os.walk(top):
        for name in [*directories, *files]:
            path = os.path.join(at, name)
            st = os.lstat(path)
            if stat.S_ISLNK(st.st_mode):
                content: object = os.readlink(path)
            elif stat.S_ISREG(st.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            else:
                content = None
            found[os.path.relpath(path, top)] = (stat.S_IFMT(st.st_mode), st.st_mode & 0o777, st.st_mtime_ns, content)
    return found


async def test_a_view_arrives_exactly_as_it_is_exported(lender: Lender, carrier: ArchiveCarrier) -> None:
    everything(lender.project)
    async with attached(lender, carrier) as view:
        expected = shown(lender.project)
        del expected[b".env"], expected[b"fifo"]

        assert shown(view.path / "workspace") == expected
        assert (view.path / "meta" / "task.json").read_bytes() == b"{}"
        first, second = ((view.path / "workspace" / name).stat() for name in ("first", "second"))
        assert first.st_ino == second.st_ino
        assert (view.path / "workspace" / "sparse").stat().st_blocks * 512 < 1 << 20
        assert view.path.stat().st_mode & 0o777 == 0o700
    assert not view.path.exists()


async def test_changes_come_back_and_all_else_is_as_it_was(lender: Lender, carrier: ArchiveCarrier) -> None:
    everything(lender.project)
    untouched = shown(lender.project)
    async with attached(lender, carrier) as view:
        inside = view.path / "workspace"
        (inside / "code.txt").write_text("one\ntwo\n")
        os.utime(inside / "code.txt", ns=(1, 1_700_000_000_000_000_007))
        (inside / "new" / "nested").mkdir(parents=True)
        (inside / "new" / "tool").write_text("#!/bin/sh\n")
        (inside / "new" / "tool").chmod(0o755)
        (inside / "new" / "link").symlink_to("tool")
        os.link(inside / "new" / "tool", inside / "new" / "tool2")
        (inside / "deep" / "er" / "file").unlink()
        (inside / "run.sh").chmod(0o644)
        (inside / "empty").rmdir()
        (inside / "empty").write_text("a file now")
        (inside / "away").symlink_to("/etc/passwd")
        (inside / ".env").write_text("not for you")
        expected = shown(inside)

        assert await view.detach()
        usage = lender.plane.usage(LEASE)

    assert usage is not None
    assert usage.returned
    assert sorted(usage.refused) == [".env: Permission denied", "away: Permission denied"]
    del expected[b"away"], expected[b".env"]
    kept = {name: untouched[name] for name in (b".env", b"fifo")}
    found = shown(lender.project)
    # times of directories into which something was written are those of the writing
    timeless = {name: entry for name, entry in found.items() if not (lender.project / os.fsdecode(name)).is_dir()}
    assert timeless == {n: e for n, e in (expected | kept).items() if n in timeless}
    assert found.keys() == (expected | kept).keys()
    assert (lender.project / "new" / "tool").stat().st_ino == (lender.project / "new" / "tool2").stat().st_ino
    assert b"code.txt" in usage.touched["workspace"]
    assert not view.path.exists()


async def test_a_read_only_lease_takes_nothing_back(lender: Lender, carrier: ArchiveCarrier) -> None:
    (lender.project / "code.txt").write_text("one\n")
    async with attached(lender, carrier, "ro") as view:
        (view.path / "workspace" / "code.txt").write_text("two\n")
        assert not await view.detach()
    assert (lender.project / "code.txt").read_text() == "one\n"


@pytest.mark.parametrize("limits", [ExportLimits(max_total_bytes=1000), ExportLimits(max_files=3)])
async def test_what_passes_the_quota_is_refused_as_a_whole(
    lender: Lender, carrier: ArchiveCarrier, limits: ExportLimits
) -> None:
    (lender.project / "code.txt").write_text("one\n")
    async with attached(lender, carrier, limits=limits) as view:
        for number in range(5):
            (view.path / "workspace" / str(number)).write_bytes(bytes(300))
        (view.path / "workspace" / "code.txt").unlink()
        assert not await view.detach()
        usage = lender.plane.usage(LEASE)
    assert usage is not None
    assert usage.quota.met is not None
    assert not usage.returned
    assert os.listdir(lender.project) == ["code.txt"]


async def test_revoking_cuts_the_link_and_nothing_comes_back(lender: Lender, carrier: ArchiveCarrier) -> None:
    (lender.project / "code.txt").write_text("one\n")
    async with attached(lender, carrier) as view:
        (view.path / "workspace" / "code.txt").write_text("two\n")
        lender.plane.revoke(LEASE, "a test")
        async with asyncio.timeout(5):
            await view.cut.wait()
        assert not await view.detach()
    assert (lender.project / "code.txt").read_text() == "one\n"


async def test_an_archive_lease_serves_no_sftp(lender: Lender) -> None:
    async with await connect(lender.lend(), KEY, 5) as connection:
        with pytest.raises(asyncssh.ChannelOpenError):
            await connection.start_sftp_client()


async def test_what_is_too_large_for_the_executor_is_not_unpacked(lender: Lender, tmp_path: Path) -> None:
    (lender.project / "large").write_bytes(bytes(20_000))
    carrier = ArchiveCarrier(tmp_path / "work", lambda: TarLimits(100, 10_000, 10_000))
    with pytest.raises(SubletError, match="more than 10,000 bytes"):
        async with attached(lender, carrier):
            pass
    assert os.listdir(tmp_path / "work") == []


def test_what_a_crash_left_is_reaped(carrier: ArchiveCarrier) -> None:
    place = carrier.reserve(LEASE)
    (place / "workspace" / "locked").mkdir(parents=True)
    (place / "workspace" / "locked" / "file").write_text("x")
    (place / "workspace" / "locked").chmod(0)
    assert carrier.reap() == [LEASE]
    assert not place.exists()
    assert carrier.reap() == []


async def test_work_goes_on_without_a_link_and_comes_back_over_another(lender: Lender, carrier: ArchiveCarrier) -> None:
    (lender.project / "code.txt").write_text("one\n")
    target = lender.lend()
    first = await connect(target, KEY, 5)
    view = await carrier.attach(carrier.reserve(LEASE), first)
    first.abort()
    async with asyncio.timeout(5):
        await view.cut.wait()
    (view.path / "workspace" / "code.txt").write_text("two\n")
    async with await connect(target, KEY, 5) as second:
        await view.rejoin(second)
        assert not view.cut.is_set()
        assert await view.detach()
    assert (lender.project / "code.txt").read_text() == "two\n"


@pytest.mark.parametrize("at", ["upload", "finish"])
async def test_a_link_that_breaks_while_changes_come_back_is_no_end_of_it(
    lender: Lender, carrier: ArchiveCarrier, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    (lender.project / "gone").write_text("gone\n")
    target = lender.lend()
    first = await connect(target, KEY, 5)
    view = await carrier.attach(carrier.reserve(LEASE), first)
    content = noise(3 << 20)
    (view.path / "workspace" / "large").write_bytes(content)
    (view.path / "workspace" / "gone").unlink()
    with monkeypatch.context() as patched:
        step = getattr(ArchiveChannel, at)

        async def broken(channel: ArchiveChannel, *data: bytes) -> object:
            first.abort()
            return await step(channel, *data)

        patched.setattr(ArchiveChannel, at, broken)
        assert not await view.bring_back()
    assert view.cut.is_set()
    assert not await view.bring_back(), "there is no link"
    async with await connect(target, KEY, 5) as second:
        await view.rejoin(second)
        while not await view.bring_back():
            # The lender had not noticed yet that the first transfer was over.
            await view.rejoin(second)
        assert not view.cut.is_set()
        assert await view.detach()
    assert (lender.project / "large").read_bytes() == content
    assert not (lender.project / "gone").exists()
    usage = lender.plane.usage(LEASE)
    assert usage is not None
    assert usage.returned


async def test_the_next_process_of_the_lender_knows_that_all_has_come_back(
    lender: Lender, carrier: ArchiveCarrier, tmp_path: Path
) -> None:
    memory = tmp_path / "memory"
    (lender.project / "code.txt").write_text("one\n")
    async with attached(lender, carrier, memory=LeaseMemory(memory)) as view:
        (view.path / "workspace" / "code.txt").write_text("two\n")
        (view.path / "workspace" / ".envrc").write_text("run=2\n")
        assert not recall(memory).returned
        assert await view.detach()
    # Killed before its journal says so, and the executor calls its work done.
    lender.plane.revoke(LEASE, "a test")
    lender.lend(memory=LeaseMemory(memory), before=recall(memory))
    usage = lender.plane.usage(LEASE)
    assert usage is not None
    assert usage.returned
    assert usage.refused_count == 1
    assert usage.refused[0].startswith(".envrc: ")


async def cut(lender: Lender, connection: asyncssh.SSHClientConnection, how: str) -> None:
    """End the lease."""
    if how == "revoked":
        lender.plane.revoke(LEASE, "a test")
    else:
        usage = lender.plane.usage(LEASE)
        lender.plane.extend(LEASE, -60)
        await connection.wait_closed()
        assert lender.plane.usage(LEASE) is usage


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_a_download_is_cut_with_its_lease(lender: Lender, how: str) -> None:
    for number in range(20):
        (lender.project / str(number)).write_bytes(noise(2 << 20))
    async with await connect(lender.lend(), KEY, 5) as connection:
        channel = await ArchiveChannel.open(connection, lambda: None)
        arrived = 0

        async def download() -> None:
            nonlocal arrived
            async for piece in channel.download():
                if not arrived:
                    await cut(lender, connection, how)
                arrived += len(piece)

        with pytest.raises(SubletError, match=CUT):
            await download()
        # what had arrived before the cut, at most
        assert 0 < arrived < 20 << 20
        with pytest.raises(SubletError):
            await ArchiveChannel.open(connection, lambda: None)


async def test_a_large_upload_is_no_flood_though_every_piece_comes_while_another_is_written(
    lender: Lender, monkeypatch: pytest.MonkeyPatch
) -> None:
    admits = LeaseConnection._admits_input

    def at_work(self: LeaseConnection, size: int) -> bool:
        waiting = {session: session._waiting for session in self._sessions}
        for session in waiting:
            session._waiting = True
        admitted = admits(self, size)
        for session, before in waiting.items():
            session._waiting = before
        return admitted

    monkeypatch.setattr(LeaseConnection, "_admits_input", at_work)
    async with await connect(lender.lend(), KEY, 5) as connection:
        channel = await ArchiveChannel.open(connection, lambda: None)
        content = noise(1 << 20)
        names = [(b"workspace", b"%d" % number) for number in range(2 * MAX_BLOCKED_INPUT // len(content))]
        await channel.plan([Planned(name, "file", len(content)) for name in names])
        for name in names:
            await channel.upload(header(Entry(name, "file", 0o644, len(content))) + content)
        await channel.upload(END)
        await channel.finish()
    assert len(shown(lender.project)) == len(names)


@pytest.mark.parametrize("how", ["revoked", "expired"])
async def test_an_upload_is_cut_with_its_lease_and_nothing_lands_afterwards(lender: Lender, how: str) -> None:
    async with await connect(lender.lend(), KEY, 5) as connection:
        channel = await ArchiveChannel.open(connection, lambda: None)
        content = noise(1 << 20)
        names = [(b"workspace", b"%d" % number) for number in range(40)]
        await channel.plan([Planned(name, "file", len(content)) for name in names])
        for name in names[:20]:
            await channel.upload(header(Entry(name, "file", 0o644, len(content))) + content)
        while len(os.listdir(lender.project)) < 3:  # it is under way
            await asyncio.sleep(0.001)
        await cut(lender, connection, how)
        landed = shown(lender.project)

        async def go_on() -> None:
            for name in names[20:]:
                await channel.upload(header(Entry(name, "file", 0o644, len(content))) + content)
            await channel.finish()

        with pytest.raises(SubletError, match=CUT):
            await go_on()
        usage = lender.plane.usage(LEASE) if how == "expired" else None
    await lender.stop()  # its threads have come to their end then
    assert shown(lender.project) == landed
    assert len(landed) < len(names)
    assert usage is None or not usage.returned

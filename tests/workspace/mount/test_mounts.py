"""Real sshfs mounts: made, used, lost, frozen, attacked, and always gone afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import ClassVar

import anyio
import asyncssh
import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.export import MountTarget
from sublet.workspace.mount.mount import OPTIONS, Mount, options
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.mount.table import is_mounted, mounted_below
from sublet.workspace.ssh.connection import LINK_LOSS_SECONDS, connect, connect_over
from support.sftp_lender import files_of, lender, lender_process, lender_that_dials

pytestmark = pytest.mark.anyio
KEY = asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture
def export(tmp_path: Path) -> Path:
    export = tmp_path / "export"
    export.mkdir()
    (export / "hello").write_text("hi\n")
    return export


@contextlib.asynccontextmanager
async def mounted(mounts: Mounts, target: MountTarget) -> AsyncIterator[Mount]:
    async with await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        try:
            yield mount
        finally:
            await mount.detach()


def attempt(action: Callable[[], object]) -> int:
    """Do what a worker would, and return the error number it sees, 0 for none."""
    try:
        action()
    except OSError as error:
        return error.errno or -1
    return 0


async def test_a_mount_reads_and_writes_the_lenders_files_and_leaves_nothing(mounts: Mounts, export: Path) -> None:
    async with lender(files_of(export), KEY) as target, mounted(mounts, target) as mount:
        assert await asyncio.to_thread((mount.path / "hello").read_text) == "hi\n"
        await asyncio.to_thread((mount.path / "new").write_text, "from the executor")
        assert (export / "new").read_text() == "from the executor"
        options = next(
            line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {mount.path} " in line
        )
        assert "nosuid" in options
        assert "nodev" in options
        assert await mount.detach() is True
        assert not mount.lost.is_set()
        assert list(mounts.root.iterdir()) == []
        assert await mount.detach() is True


async def test_a_write_through_a_shared_mapping_has_arrived_when_detach_returns(mounts: Mounts, export: Path) -> None:
    (export / "map").write_bytes(bytes(4096))
    script = "import mmap,sys; f=open(sys.argv[1],'r+b'); m=mmap.mmap(f.fileno(),0); m[:4]=b'done'"
    async with lender(files_of(export), KEY) as target, mounted(mounts, target) as mount:
        writer = await asyncio.create_subprocess_exec("python3", "-c", script, str(mount.path / "map"))
        assert await writer.wait() == 0
        assert await mount.detach()
        assert (export / "map").read_bytes()[:4] == b"done"


async def test_a_flush_that_fails_is_told_and_the_mount_is_gone_all_the_same(
    mounts: Mounts, export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sync").write_text("#!/bin/sh\nexit 1\n")
    (programs / "sync").chmod(0o755)
    async with lender(files_of(export), KEY) as target, mounted(mounts, target) as mount:
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        assert await mount.detach() is False
    assert list(mounts.root.iterdir()) == []


async def test_the_lender_may_dial_and_the_mount_is_the_same(mounts: Mounts, export: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        async with lender_that_dials(files_of(export), KEY, listener.getsockname()[1]) as target:
            accepted, _ = await asyncio.get_running_loop().sock_accept(listener)
            async with await connect_over(accepted, target, KEY) as connection:
                mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
                assert await asyncio.to_thread((mount.path / "hello").read_text) == "hi\n"
                assert await mount.detach()


async def test_another_host_key_and_another_user_key_are_refused(export: Path) -> None:
    other = asyncssh.generate_private_key("ssh-ed25519")
    async with lender(files_of(export), KEY) as target:
        wrong_host = MountTarget(target.host, target.port, target.user, other.export_public_key().decode())
        for bad, key in [
            (wrong_host, KEY),
            (target, other),
            (MountTarget(target.host, target.port, "someone", target.host_key), KEY),
            (MountTarget(target.host, target.port, target.user, "no key"), KEY),
            (MountTarget(target.host, target.port, "a\nb", target.host_key), KEY),
        ]:
            with pytest.raises(SubletError) as caught:
                await connect(bad, key, 5)
            assert caught.value.code == ErrorCode.AUTH_FAILED, bad


async def test_a_lender_that_does_not_answer_is_mount_failed_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = MountTarget("127.0.0.1", silent.getsockname()[1], "l", KEY.export_public_key().decode())
        with pytest.raises(SubletError, match="no answer in time") as caught:
            await connect(target, KEY, 0.2)
    assert caught.value.code == ErrorCode.MOUNT_FAILED
    with pytest.raises(SubletError) as caught:
        await connect(target, KEY, 5)
    assert caught.value.code == ErrorCode.MOUNT_FAILED


async def test_a_lender_without_files_is_mount_failed_with_the_reason(mounts: Mounts, tmp_path: Path) -> None:
    async with lender(files_of(tmp_path / "missing"), KEY) as target, await connect(target, KEY, 5) as connection:
        with pytest.raises(SubletError, match="No such file") as caught:
            await mounts.attach(mounts.reserve("dlg_1"), connection)
    assert caught.value.code == ErrorCode.MOUNT_FAILED
    assert list(mounts.root.iterdir()) == []


async def test_cancelling_an_attach_leaves_nothing(mounts: Mounts, export: Path) -> None:
    async with lender(files_of(export), KEY) as target, await connect(target, KEY, 5) as connection:
        path = mounts.reserve("dlg_1")
        attaching = asyncio.ensure_future(mounts.attach(path, connection))
        while not is_mounted(path) and not attaching.done():
            await asyncio.sleep(0)
        attaching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await (await attaching).detach()
    assert mounted_below(mounts.root) == []
    assert list(mounts.root.iterdir()) == []


# What may be mounted on


async def test_only_an_empty_unmounted_directory_directly_below_the_root_is_mounted_on(
    mounts: Mounts, export: Path, tmp_path: Path
) -> None:
    full, link, outside = mounts.root / "full", mounts.root / "link", tmp_path / "outside"
    mounts.reserve("other")
    outside.mkdir()
    full.mkdir()
    (full / "file").touch()
    link.symlink_to(outside)
    async with (
        lender(files_of(export), KEY) as target,
        mounted(mounts, target) as mount,
        await connect(target, KEY, 5) as connection,
    ):
        for path in (
            outside,
            full,
            link,
            mount.path,
            Path("relative"),
            mounts.root / ".." / "outside",
            mounts.root,
        ):
            with pytest.raises(SubletError) as caught:
                await mounts.attach(path, connection)
            assert caught.value.code == ErrorCode.MOUNTPOINT_DENIED, path
    assert (full / "file").exists()
    full.joinpath("file").unlink()
    full.rmdir()
    link.unlink()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc", "-o", "a\n", "a" * 65, ".hidden"])
def test_a_delegation_id_that_is_no_plain_name_reserves_nothing(mounts: Mounts, name: str) -> None:
    with pytest.raises(SubletError) as caught:
        mounts.reserve(name)
    assert caught.value.code == ErrorCode.MOUNTPOINT_DENIED


def test_reserving_twice_keeps_an_empty_directory_and_refuses_a_full_one(mounts: Mounts) -> None:
    path = mounts.reserve("dlg_1")
    assert mounts.reserve("dlg_1") == path
    (path / "file").touch()
    with pytest.raises(SubletError, match="not empty"):
        mounts.reserve("dlg_1")
    (path / "file").unlink()
    mounts.release(path)
    assert not path.exists()


def test_a_mount_root_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SubletError) as caught:
        Mounts(tmp_path / "root").reserve("dlg_1")
    assert caught.value.code == ErrorCode.MOUNTPOINT_DENIED


@pytest.mark.parametrize("path", ["", "relative", "/../x", "/a,follow_symlinks", "/a b", "/a\0"])
async def test_a_remote_path_with_anything_but_plain_names_is_refused(mounts: Mounts, export: Path, path: str) -> None:
    async with lender(files_of(export), KEY) as target, await connect(target, KEY, 5) as connection:
        with pytest.raises(SubletError) as caught:
            await mounts.attach(mounts.reserve("dlg_1"), connection, path)
    assert caught.value.code == ErrorCode.MOUNT_FAILED


def test_the_options_are_the_fixed_ones_and_leave_links_to_the_relay() -> None:
    assert "no_contain_symlinks" in OPTIONS.split(",")
    assert not {"follow_symlinks", "allow_other", "transform_symlinks"} & set(OPTIONS.split(","))
    assert options() == f"{OPTIONS},uid={os.getuid()},gid={os.getgid()}"


async def test_files_belong_to_the_user_of_the_mount_whoevers_they_are_there(mounts: Mounts, export: Path) -> None:
    """Case of an ordinary user: as nobody's, files can't be copied with their attributes, installed or moved."""
    if os.geteuid() == 0:
        os.chown(export / "hello", 65534, 65534)
    script = "cp -p hello copied && install -m 640 hello installed && mv hello moved && cat copied installed moved"
    async with lender(files_of(export), KEY) as target, mounted(mounts, target) as mount:
        status = await asyncio.to_thread((mount.path / "hello").stat)
        assert (status.st_uid, status.st_gid) == (os.getuid(), os.getgid())
        run = await asyncio.create_subprocess_exec("sh", "-c", script, cwd=mount.path, stdout=asyncio.subprocess.PIPE)
        out, _ = await run.communicate()
        assert out == b"hi\n" * 3
        assert await mount.detach()


@pytest.mark.parametrize("flush", [True, False])
async def test_a_task_that_is_cancelled_leaves_no_mount(mounts: Mounts, export: Path, flush: bool) -> None:
    """On Python 3.11.2 a time limit in a cancelled task ended all that came after it, and the mount stayed."""
    async with lender(files_of(export), KEY) as target, await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        assert mount.is_there
        assert mount.left == f"{mount.path} is still mounted"
        sshfs = sshfs_of(mount)
        working = asyncio.Event()

        async def work() -> None:
            try:
                working.set()
                await asyncio.Event().wait()
            finally:
                with anyio.CancelScope(shield=True):
                    await mount.detach(flush=flush)

        task = asyncio.create_task(work())
        await working.wait()
        task.cancel()
        await asyncio.wait([task])
        assert not mount.is_there
        assert mount.left == ""
        with pytest.raises(ProcessLookupError):
            os.kill(sshfs, 0)
    assert list(mounts.root.iterdir()) == []


# Losing it


def sshfs_of(mount: Mount) -> int:
    found = subprocess.run(["pgrep", "-f", f"sshfs.*{mount.path}$"], capture_output=True, text=True, check=True)
    return int(found.stdout)


def has_flag(path: Path) -> bool:
    """Tell whether a directory is immutable, as ``lsattr`` does."""
    done = subprocess.run(["lsattr", "-d", str(path)], capture_output=True, text=True, check=False)
    return "i" in done.stdout.partition(" ")[0]


def takes_flag(above: Path) -> bool:
    """Tell whether the file system has the flag, and whether we may set it."""
    tried = above / "tried"
    tried.mkdir()
    done = subprocess.run(["chattr", "+i", str(tried)], capture_output=True, check=False)
    subprocess.run(["chattr", "-i", str(tried)], capture_output=True, check=False)
    tried.rmdir()
    return done.returncode == 0


async def test_what_guards_a_lost_mount_is_told_and_goes_with_the_next_start(mounts: Mounts, export: Path) -> None:
    async with lender(files_of(export), KEY) as target:
        connection = await connect(target, KEY, 5)
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        if os.geteuid() == 0:
            assert (mounts.guard == "immutable directory") is takes_flag(mounts.root)
        else:
            assert mounts.guard == "directory without permissions"
        os.kill(sshfs_of(mount), signal.SIGTERM)
        async with asyncio.timeout(5):
            await mount.lost.wait()
            while is_mounted(mount.path):
                await asyncio.sleep(0.01)
        guarded = has_flag(mount.path)
        assert guarded is (mounts.guard == "immutable directory")
        if guarded:
            with pytest.raises(PermissionError):
                mount.path.rmdir()
        connection.abort()
        await connection.wait_closed()
        # As after a kill of the daemon: nobody detaches, and whoever starts next finds the guarded directory.
        other = Mounts(mounts.root)
        other.reap()
        assert list(mounts.root.iterdir()) == []
        await mount.detach()


@pytest.mark.parametrize(
    ("number", "told"), [(signal.SIGTERM, "by itself with status"), (signal.SIGKILL, "killed by signal 9")]
)
async def test_a_lost_mount_is_never_taken_for_an_empty_directory(
    mounts: Mounts, export: Path, number: signal.Signals, told: str
) -> None:
    async with lender(files_of(export), KEY) as target, await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        os.kill(sshfs_of(mount), number)
        async with asyncio.timeout(5):
            await mount.lost.wait()
            while told not in mount.why_lost:
                await asyncio.sleep(0.01)
        assert await asyncio.to_thread(attempt, lambda: (mount.path / "result").write_text("lost")) != 0
        if number is signal.SIGTERM:
            while is_mounted(mount.path):
                await asyncio.sleep(0.01)
            # As an ordinary user sees it; root reads what it likes, and still can't write.
            assert stat.S_IMODE(mount.path.stat().st_mode) == 0
            assert has_flag(mount.path) is (os.geteuid() == 0 and takes_flag(mounts.root))
        assert await asyncio.to_thread(attempt, lambda: (mount.path / "result").write_text("lost")) != 0
        assert await mount.detach() is False
    assert list(mounts.root.iterdir()) == []
    assert not (export / "result").exists()


async def test_a_mount_fails_without_its_link_and_goes_on_with_another(mounts: Mounts, export: Path) -> None:
    (export / "old").write_text("old\n")
    async with lender(files_of(export), KEY) as target:
        first = await connect(target, KEY, 5)
        mount = await mounts.attach(mounts.reserve("dlg_1"), first)
        open_before = await asyncio.to_thread((mount.path / "old").open)
        assert not mount.cut.is_set()

        first.abort()
        async with asyncio.timeout(5):
            await mount.cut.wait()
        assert not mount.lost.is_set()
        assert await asyncio.to_thread(attempt, lambda: (mount.path / "result").write_text("lost")) == errno.EIO
        failed = mount.interrupted
        assert failed >= 1
        attending = asyncio.create_task(mount.attend())
        assert await asyncio.to_thread(attempt, open_before.read) == errno.EIO

        async with await connect(target, KEY, 5) as second:
            await mount.rejoin(second)
            assert not mount.cut.is_set()
            # A call that comes while programs are told of a stuck read fails with it.
            while await asyncio.to_thread(attempt, (mount.path / "hello").read_text) == errno.EIO:
                await asyncio.sleep(0.01)
            assert await asyncio.to_thread((mount.path / "hello").read_text) == "hi\n"
            # This lender numbers its handles from nought on every link: the old one must not read the new one's file.
            with await asyncio.to_thread((mount.path / "hello").open) as opened:
                assert await asyncio.to_thread(attempt, open_before.read) == errno.EIO
                await asyncio.to_thread(open_before.close)
                assert await asyncio.to_thread(opened.read) == "hi\n"
            await asyncio.to_thread((mount.path / "result").write_text, "arrived")
            assert (export / "result").read_text() == "arrived"
            assert mount.interrupted > failed
            attending.cancel()
            assert await mount.detach()
    assert list(mounts.root.iterdir()) == []


async def test_a_mount_without_its_link_is_ended_at_once(mounts: Mounts, export: Path) -> None:
    async with lender(files_of(export), KEY) as target, await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        connection.abort()
        async with asyncio.timeout(2):
            await mount.cut.wait()
            assert await mount.detach() is False
    assert list(mounts.root.iterdir()) == []


@pytest.mark.parametrize("flush", [True, False])
async def test_detaching_from_a_stopped_sshfs_is_bounded(
    mounts: Mounts, export: Path, monkeypatch: pytest.MonkeyPatch, flush: bool
) -> None:
    monkeypatch.setattr("sublet.workspace.mount.mount.FLUSH_SECONDS", 0.5)
    async with lender(files_of(export), KEY) as target, await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        os.kill(sshfs_of(mount), signal.SIGSTOP)
        worker = await asyncio.create_subprocess_exec(
            "cat", str(mount.path / "hello"), stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(3):
            assert await mount.detach(flush=flush) is False
            assert await worker.wait() != 0
    assert mounted_below(mounts.root) == []
    assert list(mounts.root.iterdir()) == []


async def test_case_c02_a_frozen_lender_becomes_an_error_within_the_stated_bound(mounts: Mounts, export: Path) -> None:
    assert LINK_LOSS_SECONDS <= 15
    async with lender_process(export, KEY) as (target, pid), await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        async with asyncio.timeout(LINK_LOSS_SECONDS + 3):
            worker = await asyncio.create_subprocess_exec(
                "cat", str(mount.path / "hello"), stderr=asyncio.subprocess.DEVNULL
            )
            assert await worker.wait() != 0
        assert mount.cut.is_set()
        assert time.monotonic() - began <= LINK_LOSS_SECONDS + 3
        assert await mount.detach() is False
    assert list(mounts.root.iterdir()) == []


async def test_detaching_from_a_frozen_lender_returns_and_frees_who_waits(
    mounts: Mounts, export: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublet.workspace.mount.mount.FLUSH_SECONDS", 0.5)
    async with lender_process(export, KEY) as (target, pid), await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        os.kill(pid, signal.SIGSTOP)
        worker = await asyncio.create_subprocess_exec(
            "cat", str(mount.path / "hello"), stderr=asyncio.subprocess.DEVNULL
        )
        async with asyncio.timeout(10):
            await mount.detach()
            assert await worker.wait() != 0
    assert mounted_below(mounts.root) == []
    assert list(mounts.root.iterdir()) == []


# A lender that attacks


class _RogueFiles(asyncssh.SFTPServer):
    """Shows links out of the mount whatever is asked for."""

    LINKS: ClassVar = {b"/absolute": b"/etc/passwd", b"/climbing": b"../../../../../../etc/passwd", b"/root": b"/"}

    def lstat(self, path: bytes) -> asyncssh.SFTPAttrs:
        if path in self.LINKS:
            return asyncssh.SFTPAttrs(permissions=stat.S_IFLNK | 0o777, size=len(self.LINKS[path]))
        return asyncssh.SFTPAttrs(permissions=stat.S_IFDIR | 0o755)

    def readlink(self, path: bytes) -> bytes:
        return self.LINKS[path]


async def test_case_c04_links_of_a_rogue_lender_never_reach_the_executors_own_files(mounts: Mounts) -> None:
    async with lender(_RogueFiles, KEY) as target, mounted(mounts, target) as mount:
        for name in ("absolute", "climbing", "root/etc/passwd"):
            assert await asyncio.to_thread(attempt, (mount.path / name).read_bytes) != 0, name
            assert await asyncio.to_thread(attempt, lambda: os.open(mount.path / name, os.O_WRONLY)) != 0, name  # noqa: B023


# After a crash


async def test_reap_unmounts_and_removes_what_a_crash_left_and_nothing_else(
    mounts: Mounts, export: Path, tmp_path: Path
) -> None:
    async with lender(files_of(export), KEY) as target, await connect(target, KEY, 5) as connection:
        mount = await mounts.attach(mounts.reserve("dlg_1"), connection)
        left = mounts.reserve("dlg_2")
        full = mounts.reserve("full")
        (full / "file").touch()
        (mounts.root / "link").symlink_to(tmp_path / "export")
        reaped = await asyncio.to_thread(Mounts(mounts.root).reap)
        assert reaped == ["dlg_1", "dlg_2"]
        assert not is_mounted(mount.path)
        assert not left.exists()
        assert sorted(path.name for path in mounts.root.iterdir()) == ["full", "link"]
        assert (export / "hello").exists()
        await mount.detach()
    (full / "file").unlink()
    (mounts.root / "link").unlink()
    assert mounts.reap() == ["full"]
    assert mounts.reap() == []

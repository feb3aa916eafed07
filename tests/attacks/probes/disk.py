"""A disk that fails at each open and each removal in turn, in everything that a lease does with files."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import asyncssh

from attacks.kit.audited_lease import OK, AuditedLease
from attacks.kit.broken_disk import Work, fail_each
from attacks.kit.repository import index_of, object_id
from attacks.probe import FailureProbe, Probe
from attacks.probes.repository import RULES
from sublet.disk import removal
from sublet.disk.disk_usage import disk_usage
from sublet.disk.durable import sync_directory, write_durably
from sublet.disk.openat2 import choose_opener, open_real, walk_beneath
from sublet.disk.private_dir import PrivateDir
from sublet.disk.removal import remove_tree
from sublet.disk.set_aside import SetAside
from sublet.protocol.names import parse_name
from sublet.workspace import requirements
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.changes.apply_dir import ApplyDir
from sublet.workspace.changes.branch import export_branch
from sublet.workspace.changes.export import export_patch, not_carried
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import Export, LentDirectory, MountTarget
from sublet.workspace.folding import may_fold
from sublet.workspace.git.place import find
from sublet.workspace.git.refs import read_refs
from sublet.workspace.git.repository import look_at
from sublet.workspace.lease_files import MountedFiles
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.quota import Quota
from sublet.workspace.sandbox.cgroups import Cgroups
from sublet.workspace.serving.lease_memory import LeaseMemory
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from sublet.workspace.staging import overlay
from sublet.workspace.view import locked_names
from sublet.workspace.work_dirs import WorkDirs
from support.sftp_lender import public_line
from support.staged import KEY, OTHER_KEY, StagedBench, emptied, write
from support.views import default_rules

LEASE: Final = "dlg_" + "a" * 32
COMMIT: Final = "1" * 64
LIMITS: Final = TarLimits(1_000, 1 << 24, 1 << 24)
SSH_KEY: Final = asyncssh.generate_private_key("ssh-ed25519")


def odd_tree(root: Path) -> None:
    """Fill an emptied directory with what a project can hold, welcome or not."""
    emptied(root)
    for number in range(3):
        write(root, f"d{number}/f", "one\ntwo\nthree\n")
    write(root, os.fsdecode(b"caf\xe9 \n"), "odd")
    write(root, ".env", "SECRET=1")
    write(root, "tool.sh", "#!/bin/sh\n", 0o755)
    write(root, "d2/gone", "gone")
    (root / "link").symlink_to("d0/f")
    (root / "loop").symlink_to("loop")
    (root / "away").symlink_to("/etc/passwd")
    os.link(root / "d0" / "f", root / "second")
    os.mkfifo(root / "fifo")


def whole(condition: bool) -> None:
    """Raise ``OSError`` where what was done is not all that was asked; while the disk fails it may be less."""
    if not condition:
        raise OSError("it is not whole")


def started(base: Path, fill: Callable[[Path], object] = odd_tree) -> StagedBench:
    """Return what stages and applies results, after what a daemon does at its start, over an odd tree."""
    bench = StagedBench(base)
    bench.applier.recover_all()
    bench.staging.reap(())
    for key in bench.changes.all_keys():
        bench.changes.clear(key)
    fill(bench.root)
    return bench


async def exported(base: Path) -> None:
    """Make a patch and a branch of a result."""
    bench = started(base)
    subprocess.run(["git", "init", "-q", str(bench.root)], check=True)
    with bench.work() as view:
        write(view, "binary", bytes(range(256)))
        write(view, "d1/f", "one\n2\n")
    bench.auditor.watch_refs(bench.root, COMMIT)
    whole(bench.auditor.moved_refs(bench.root, COMMIT) == [])
    whole(b"GIT binary patch" in export_patch(bench.changes, KEY))
    not_carried(bench.changes, KEY)
    whole(export_branch(bench.changes, KEY, bench.rules, "work", "what was done").left_out == [])
    bench.changes.discard(KEY)


async def layered(base: Path) -> None:
    """Lay a private layer over a directory, where the kernel lets us, and look at what it holds."""
    bench = started(base)
    overlay._tried.cache_clear()
    if overlay.why_no_overlay(bench.state):
        return
    view = bench.staging.open(KEY, bench.root, bench.rules, want="overlay")
    try:
        top = view.open_root()
        try:
            os.mkdir("made", dir_fd=top)
        finally:
            os.close(top)
        whole(bench.staging.is_own_change(view, b"made"))
        whole(not bench.staging.is_own_change(view, b"d0/f"))
    finally:
        bench.staging.close()
        bench.staging.discard(KEY)


@contextmanager
def two_disks() -> Iterator[None]:
    """Keep what was displaced from being moved to the state, as where that lies on another disk."""
    rename = os.rename

    def elsewhere(*names: Any, **directories: Any) -> None:
        if sys._getframe(1).f_code is ApplyDir.keep.__code__:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(*names, **directories)

    with patch.object(os, "rename", elsewhere):
        yield


async def reviewed(base: Path) -> None:
    """Stage a result, review it, apply it, take it back, and forget everything."""
    bench = started(base)
    with bench.work() as view:
        write(view, "d0/f", "one\ntwo\n3\n")
        (view / "shut" / "in").mkdir(parents=True)
        (view / "shut").chmod(0)
        write(view, "d1/f", "one\n2\n")
        write(view, "new/f", "new")
        shutil.rmtree(view / "d2")
        (view / "link").unlink()
        (view / "link").symlink_to("new/f")
        (view / "d1").chmod(0o711)
    write(bench.root, "d0/f", "1\ntwo\nthree\n")
    bench.applier.preview(KEY, bench.rules)
    with two_disks():
        bench.applier.apply(KEY, bench.rules, partial=True, allow_mass_deletion=True)
    whole(bench.read("d0/f") == "1\ntwo\n3\n")
    whole(not (bench.root / "d2").exists())
    bench.applier.undo(KEY)
    whole(bench.read("d2/gone") == "gone")
    bench.changes.discard(KEY)
    whole(bench.auditor.kept() != [])
    bench.auditor.forget(bench.root)
    bench.staging.close()


async def together(base: Path) -> None:
    """Apply the results of two directories, and take them back: both or none. What else is in them decides nothing."""
    bench = started(base, emptied)
    emptied(bench.other)
    for key in (KEY, OTHER_KEY):
        with bench.work(key) as view:
            write(view, "made", key)
    bench.applier.apply_all({KEY: bench.rules, OTHER_KEY: bench.rules})
    whole((bench.read("made"), (bench.other / "made").read_text()) == (KEY, OTHER_KEY))
    bench.applier.undo_all([KEY, OTHER_KEY])
    whole(not (bench.root / "made").exists() and not (bench.other / "made").exists())
    for key in (KEY, OTHER_KEY):
        bench.changes.discard(key)


async def served(base: Path) -> None:
    """Let an executor do all that SFTP has over an odd tree, and audit it."""
    lent, outside = base / "lent", base / "outside"
    shutil.rmtree(lent, ignore_errors=True)
    outside.unlink(missing_ok=True)
    lease = AuditedLease(base)
    odd_tree(lease.root)
    outside.write_text("outside")
    os.link(outside, lease.root / "shared")
    with lease.work() as executor:
        done = [
            executor.write(b"d0/f", b"1"),
            executor.write(b"shared", b"mine"),
            executor.write(b"new", b"new", 0o600),
            executor.chmod(b"tool.sh", 0o644),
            executor.fchmod(b"new", 0o640),
            executor.touch(b"new", 1_000_000),
            executor.mkdir(b"made"),
            executor.rename(b"new", b"made/new"),
            executor.rename(b"d1", b"made/d1"),
            executor.link(b"made/new", b"made/again"),
            executor.symlink(b"new", b"made/link"),
            executor.mkdir(b"short"),
            executor.rmdir(b"short"),
            executor.remove(b"d2/f"),
        ]
        executor.client.listing(b"/workspace/made")
    whole(done == [OK] * len(done))
    whole(outside.read_text() == "outside")
    report = lease.audit()
    whole({b"d0/f", b"shared", b"made/new", b"d2/f"} <= {file.path for file in report.files})
    lease.patch(report)


async def carried(kind: str, base: Path) -> None:
    """Bring a directory to an executor over a real connection, work in it, and bring the result back."""
    project, work = base / "project", base / "work"
    project.mkdir(exist_ok=True)
    odd_tree(project)
    made = ArchiveCarrier if kind == "archive" else GitCarrier
    carrier = made(work, lambda: LIMITS)
    carrier.reap()
    plane = DataPlane(asyncssh.generate_private_key("ssh-ed25519"), scratch=base / "scratch")
    await plane.start("127.0.0.1", 0)
    serving = asyncio.ensure_future(plane.serve())
    try:
        directory = LentDirectory("workspace", project, "rw", default_rules())
        export = Export(LEASE, (directory,), public_line(SSH_KEY), 60, {"task.json": b"{}"}, transport=kind)  # type: ignore[arg-type]
        plane.open(export)
        target = MountTarget(*plane.address, LEASE, plane.host_key_line)
        async with await connect(target, SSH_KEY, 5) as connection:
            view = await carrier.attach(carrier.reserve(LEASE), connection)
            write(view.path / "workspace", "d0/f", "worked\n")
            write(view.path / "workspace", "made/f", "made\n")
            shutil.rmtree(view.path / "workspace" / "d2")
            whole(await view.detach())
    finally:
        plane.close()
        serving.cancel()
        await asyncio.wait([serving])
    whole((project / "d0" / "f").read_text() == "worked\n")
    whole(not (project / "d2" / "gone").exists())


async def given(base: Path) -> None:
    """Give a repository an index, a reference and an object as git does: a draft each, which is renamed."""
    root = emptied(base / "repository")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    object_file = zlib.compress(b"blob 1\0x")
    name = object_id("blob", b"x")
    tree = WritableFs(ConfinedFs.open_root(root), RULES, Quota(1 << 20, 1000), lambda _: None)
    try:
        for path, content in (
            (b"index", index_of([(b"a", 0o100644, name)])),
            (b"HEAD", b"ref: refs/heads/other\n"),
            (b"packed-refs", b"# pack-refs with: peeled fully-peeled sorted \n"),
            (b"objects/%s/%s" % (name[:2].encode(), name[2:].encode()), object_file),
        ):
            parts = (b".git", *path.split(b"/"))
            draft = (*parts[:-1], b"tmp_obj_x" if path.startswith(b"objects") else parts[-1] + b".lock")
            if path.startswith(b"objects"):
                tree.mkdir(parts[:-1], 0o755)
            file = tree.open_write(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
            file.write(content, 0)
            file.close()
            tree.rename(draft, parts, replace=True)
            whole((root.joinpath(*map(os.fsdecode, parts))).read_bytes() == content)
    finally:
        tree.close()
    look_at(root)
    find(root)
    read_refs(root)


async def asked(base: Path) -> None:
    """Write, read, search, move and delete files of a lease for an agent."""
    files = MountedFiles({"workspace": (emptied(base / "mounted"), "rw")})
    try:
        await files.write(("workspace", "a", "b.txt"), b"one\n")
        whole((await files.read(("workspace", "a", "b.txt"), 0, 9)).data == b"one\n")
        await files.list(("workspace", "a"), 10)
        whole(len((await files.search((), "one", "*.txt", 10, ignore_case=False)).found) == 1)
        await files.move(("workspace", "a", "b.txt"), ("workspace", "c.txt"))
        await files.delete(("workspace", "a"))
        await files.delete(("workspace", "c.txt"))
    finally:
        await files.aclose()


async def kept(base: Path) -> None:
    """Write, read, set aside and remove what the daemon keeps of leases."""
    state = base / "state"
    with patch.object(removal, "choose_opener", lambda: walk_beneath):  # as where the kernel has no ``openat2``
        remove_tree(state)
    state.mkdir()
    odd_tree(state / "scratch")
    with PrivateDir.open(state) as private:
        private.write("secret", b"s" * 100_000)
        whole(private.read("secret", 1 << 20) == b"s" * 100_000)
        private.directory("fresh", fresh=True).close()
        private.remove("secret")
    write_durably(state / "record", b"{}")
    sync_directory(state)
    aside = SetAside(state)
    aside.keep("a row", b"{", "it is torn")
    aside.take(state / "record", "it is torn")
    aside.remove_later(state / "scratch" / "d0")
    aside.sweep()
    memory = LeaseMemory(state / "memory")
    memory.touch("workspace", b"path")
    memory.close()
    dirs = WorkDirs(state / "work")
    os.close(dirs.open(dirs.reserve(LEASE)))
    dirs.reap()
    mounts = Mounts(state / "mounts")
    mounts.reserve(LEASE)
    mounts.reap()
    whole(disk_usage(state) > 0)
    top = open_real(base, os.O_RDONLY)
    try:
        os.close(walk_beneath(top, b"state/scratch", os.O_RDONLY))
    finally:
        os.close(top)
    may_fold(state)
    choose_opener.cache_clear()
    choose_opener()
    locked_names.load.cache_clear()
    locked_names.load()
    requirements.check_mount()
    requirements.check_openat2()
    groups = Cgroups(f"sublet-probe-{os.getpid()}")
    try:
        if groups.items:
            groups.open(parse_name("job"), memory_bytes=1 << 30, processes=10, cpu_seconds=10).close()
    finally:
        groups.close()
    whole(removal.is_removed(state / "scratch"))


def failing(work: Work, *packages: str, least: int, code: int = errno.EIO) -> Callable[[], Awaitable[object]]:
    """Return what fails ``work`` in each of its places in ``packages``, of which there are ``least`` or more."""

    async def throw() -> None:
        base = Path(tempfile.mkdtemp(prefix="probe-disk-")).resolve()
        try:
            assert len(await fail_each(work, base, packages, code)) >= least
        finally:
            remove_tree(base)

    return throw


REFS: Final = "workspace.audit.shadow:Shadow.kept_refs"

PROBES: Sequence[Probe] = (
    FailureProbe(
        name="disk: a result that is reviewed",
        covers=(
            "workspace.changes.apply_dir:ApplyDir._directory",
            "workspace.changes.apply_dir:copy_name",
            "workspace.changes.merge:Merger._merged",
            "workspace.changes.transaction:_abandon",
            "workspace.changes.transaction:_revert",
            "workspace.changes.transaction:_set_permissions",
            "workspace.changes.tree:Tree.read",
        ),
        throw=failing(reviewed, "workspace.changes.", least=15),
    ),
    FailureProbe(
        name="disk: results of two directories",
        covers=("workspace.changes.together:Together._decide", "workspace.changes.together:forget"),
        throw=failing(together, "workspace.changes.together:", "disk.durable:", least=2),
    ),
    FailureProbe(
        name="disk: a result that is exported",
        covers=("workspace.changes.export:_usual_ids", "workspace.changes.branch:_add", REFS),
        throw=failing(exported, "workspace.changes.branch:", "workspace.changes.export:", REFS, least=3),
    ),
    FailureProbe(
        name="disk: a layer over a directory",
        covers=("workspace.staging.overlay:_tried",),
        throw=failing(layered, "workspace.staging.", least=1),
    ),
    FailureProbe(
        name="disk: a lease by SFTP",
        covers=(
            "workspace.audit.shadow:lock",
            "workspace.confined.names:held_name",
            "workspace.confined.copy_up:_made",
            "workspace.confined.file:WriteFile.moved_to",
            "workspace.confined.write:WritableFs._set_mode",
            "workspace.sftp.writes:WriteOps._rmdir",
        ),
        throw=failing(served, "workspace.audit.", "workspace.confined.", "workspace.view.", least=15),
    ),
    FailureProbe(
        name="disk: a lease by archive",
        covers=("workspace.archive.tree_pack:TreePacker._file", "workspace.archive.tree_manifest:_digest"),
        throw=failing(partial(carried, "archive"), "workspace.archive.", "workspace.work_dirs", least=3),
    ),
    FailureProbe(
        name="disk: a lease by git",
        covers=("workspace.bundles.carrier:ClonedView._arrange", "workspace.bundles.stream:_add"),
        throw=failing(partial(carried, "git"), "workspace.bundles.", least=5),
    ),
    FailureProbe(
        name="disk: what a repository is given",
        covers=("workspace.git.take:take", "workspace.git.take:_replaced", "workspace.git.repository:_content"),
        throw=failing(given, "workspace.git.", least=6),
    ),
    FailureProbe(
        name="disk: what an agent asks of files",
        covers=("workspace.lease_files:MountedFiles._delete", "workspace.lease_search:walk"),
        throw=failing(asked, "workspace.confined.", least=3),
    ),
    FailureProbe(
        name="disk: what is kept of leases",
        covers=("disk.private_dir:PrivateDir.write", "disk.openat2:choose_opener", "workspace.view.locked_names:load"),
        throw=failing(kept, "disk.", "workspace.", least=20),
    ),
    FailureProbe(
        name="disk: what may not be opened or removed",
        covers=("disk.removal:_permit", "disk.removal:_Removal._open_up", "disk.inode_flags:make_changeable"),
        throw=failing(kept, "disk.", least=10, code=errno.EACCES),
    ),
)

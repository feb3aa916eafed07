"""A disk that fails at each open and each removal in turn, in everything that a lease does with files."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import asyncssh

from attacks.kit.audited_lease import OK, AuditedLease
from attacks.kit.broken_disk import Work, fail_each
from attacks.kit.repository import index_of, object_id
from attacks.probe import FailureProbe, Probe
from attacks.probes.repository import RULES, whole_transfer
from sublet.disk import removal
from sublet.disk.disk_usage import disk_usage
from sublet.disk.durable import sync_directory, write_durably
from sublet.disk.openat2 import open_real, walk_beneath
from sublet.disk.private_dir import PrivateDir
from sublet.disk.removal import remove_tree
from sublet.disk.set_aside import SetAside
from sublet.protocol.names import parse_name
from sublet.workspace import requirements
from sublet.workspace.archive.carrier import ArchiveCarrier
from sublet.workspace.archive.tar_format import TarLimits
from sublet.workspace.bundles.carrier import GitCarrier
from sublet.workspace.changes.branch import export_branch
from sublet.workspace.changes.export import export_patch, not_carried
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.git.place import find
from sublet.workspace.git.refs import read_refs
from sublet.workspace.git.repository import look_at
from sublet.workspace.model import Export, LentDirectory, MountTarget
from sublet.workspace.mount.mounts import Mounts
from sublet.workspace.quota import Quota
from sublet.workspace.sandbox.cgroups import Cgroups
from sublet.workspace.serving.lease_memory import LeaseMemory
from sublet.workspace.serving.listener import DataPlane
from sublet.workspace.ssh.connection import connect
from sublet.workspace.staging.overlay import why_no_overlay
from sublet.workspace.work_dirs import WorkDirs
from support.sftp_lender import public_line
from support.staged import KEY, StagedBench, emptied, write
from support.views import default_rules

LEASE: Final = "dlg_" + "a" * 32
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


async def reviewed(base: Path) -> None:
    """Stage a result, review it, apply it, take it back, put it on a branch, and forget everything."""
    bench = StagedBench(base)
    bench.applier.recover_all()
    bench.staging.reap(())
    for key in bench.changes.all_keys():
        bench.changes.clear(key)
    odd_tree(bench.root)
    subprocess.run(["git", "init", "-q", str(bench.root)], check=True)
    with bench.work() as view:
        write(view, "d0/f", "one\ntwo\n3\n")
        write(view, "d1/f", "one\n2\n")
        write(view, "new/f", "new")
        shutil.rmtree(view / "d2")
        (view / "link").unlink()
        (view / "link").symlink_to("new/f")
        (view / "d1").chmod(0o711)
    write(bench.root, "d0/f", "1\ntwo\nthree\n")
    bench.applier.preview(KEY, bench.rules)
    export_patch(bench.changes, KEY)
    not_carried(bench.changes, KEY)
    export_branch(bench.changes, KEY, bench.rules, "work", "what was done")
    bench.applier.apply(KEY, bench.rules, partial=True, allow_mass_deletion=True)
    whole(bench.read("d0/f") == "1\ntwo\n3\n")
    whole(not (bench.root / "d2").exists())
    bench.applier.undo(KEY)
    whole(bench.read("d2/gone") == "gone")
    bench.changes.discard(KEY)
    whole(bench.auditor.kept() != [])
    bench.auditor.forget(bench.root)
    bench.staging.close()


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


async def transferred(_base: Path) -> None:
    """Plan, bring and take bundles of git."""
    await whole_transfer()


async def kept(base: Path) -> None:
    """Write, read, set aside and remove what the daemon keeps of leases."""
    state = base / "state"
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
    await asyncio.to_thread(why_no_overlay, state)
    requirements.check_mount()
    requirements.check_openat2()
    groups = Cgroups(f"sublet-probe-{os.getpid()}")
    try:
        if groups.items:
            groups.open(parse_name("job"), memory_bytes=1 << 30, processes=10, cpu_seconds=10).close()
    finally:
        groups.close()
    whole(removal.is_removed(state / "scratch"))


def failing(work: Work, least: int, code: int = errno.EIO) -> Callable[[], Awaitable[object]]:
    """Return what fails ``work`` in each of its places, of which there are ``least`` or more."""

    async def throw() -> None:
        base = Path(tempfile.mkdtemp(prefix="probe-disk-")).resolve()
        try:
            assert len(await fail_each(work, base, code)) >= least
        finally:
            remove_tree(base)

    return throw


PROBES: Sequence[Probe] = (
    FailureProbe(
        name="disk: a result that is reviewed",
        covers=("workspace.changes.apply:Applier.apply_all",),
        throw=failing(reviewed, 20),
    ),
    FailureProbe(
        name="disk: a lease by SFTP",
        covers=("workspace.confined.write:WritableFs._open_or_create",),
        throw=failing(served, 10),
    ),
    FailureProbe(
        name="disk: a lease by archive",
        covers=("workspace.archive.carrier:UnpackedView._bring_back",),
        throw=failing(partial(carried, "archive"), 5),
    ),
    FailureProbe(
        name="disk: a lease by git",
        covers=("workspace.bundles.carrier:ClonedView._arrange",),
        throw=failing(partial(carried, "git"), 5),
    ),
    FailureProbe(
        name="disk: what a repository is given",
        covers=("workspace.git.take:take", "workspace.git.take:_replaced", "workspace.git.repository:_content"),
        throw=failing(given, 6),
    ),
    FailureProbe(
        name="disk: bundles", covers=("workspace.bundles.stream:write_snapshot",), throw=failing(transferred, 5)
    ),
    FailureProbe(
        name="disk: what is kept of leases", covers=("disk.private_dir:PrivateDir.write",), throw=failing(kept, 10)
    ),
    FailureProbe(
        name="disk: what may not be opened or removed",
        covers=("disk.removal:_permit", "disk.removal:_Removal._open_up"),
        throw=failing(kept, 10, errno.EACCES),
    ),
)

"""A disk that fails at each open and each removal in turn, in everything that a lease does with files."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import asyncssh

from attacks.kit.audited_lease import OK, AuditedLease
from attacks.kit.broken_disk import Work, fail_each
from attacks.probe import FailureProbe, Probe
from attacks.probes.repository import whole_transfer
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
from sublet.workspace.model import Export, LentDirectory, MountTarget
from sublet.workspace.mount.mounts import Mounts
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
    assert bench.read("d0/f") == "1\ntwo\n3\n"
    assert not (bench.root / "d2").exists()
    bench.applier.undo(KEY)
    assert bench.read("d2/gone") == "gone"
    bench.changes.discard(KEY)
    assert bench.auditor.kept() != []
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
    assert done == [OK] * len(done), done
    assert outside.read_text() == "outside"
    report = lease.audit()
    assert {b"d0/f", b"shared", b"made/new", b"d2/f"} <= {file.path for file in report.files}
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
            whole = await view.detach()
    finally:
        plane.close()
        serving.cancel()
        await asyncio.wait([serving])
    if not whole:
        raise OSError("nothing came back")
    assert (project / "d0" / "f").read_text() == "worked\n"
    assert not (project / "d2" / "gone").exists()


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
        assert private.read("secret", 1 << 20) == b"s" * 100_000
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
    assert disk_usage(state) > 0
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
    assert removal.is_removed(state / "scratch")


def failing(work: Work, least: int) -> Callable[[], Awaitable[object]]:
    """Return what fails ``work`` in each of its places, of which there are ``least`` or more."""

    async def throw() -> None:
        base = Path(tempfile.mkdtemp(prefix="probe-disk-")).resolve()
        try:
            assert len(await fail_each(work, base)) >= least
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
        name="disk: bundles", covers=("workspace.bundles.stream:write_snapshot",), throw=failing(transferred, 5)
    ),
    FailureProbe(
        name="disk: what is kept of leases", covers=("disk.private_dir:PrivateDir.write",), throw=failing(kept, 10)
    ),
)



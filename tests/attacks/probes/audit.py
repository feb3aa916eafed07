"""Probes of the audit, of change sets, and of what applies and takes them back."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import anyio

from attacks.kit.audited_lease import AuditedLease
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from sublet.protocol.errors import SubletError
from sublet.workspace.audit import manifest as manifests
from sublet.workspace.audit.auditor import Auditor
from sublet.workspace.audit.comparing import compare, patch_of
from sublet.workspace.audit.manifest import ROOT, Manifest, Record
from sublet.workspace.audit.shadow_git import DIRECTORY, PLAIN, blob_id, mask, quoted, unmask
from sublet.workspace.audit.snapshot import take
from sublet.workspace.changes import record as records
from sublet.workspace.changes.export import not_carried
from sublet.workspace.confined.bounds import open_up
from sublet.workspace.staging.staged_result import checked_key
from support.staged import KEY, StagedBench, write
from support.views import default_rules

BYTES_A_NAME: Final = 64


def base() -> Path:
    """Return a new directory; what runs in it removes it."""
    return Path(tempfile.mkdtemp(prefix="probe-audit-")).resolve()


def tree_of(size: int) -> Path:
    """Return a directory with names of about ``size`` bytes, some of them nested."""
    root = base()
    for number in range(max(1, size // BYTES_A_NAME)):
        place = root / f"{number % 7}/{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{number:0{BYTES_A_NAME - 6}}").touch()
    return root


def snapshot_of(root: Path) -> None:
    """Read a tree into a manifest, then again with what is known, as a lease does."""
    rules = default_rules()
    first = take(root, rules, {}, b"salt", lambda _: None)
    take(root, rules, first.manifest, b"salt", lambda _: None)
    shutil.rmtree(root)


def manifest_of(size: int) -> Manifest:
    """Return a manifest whose names have about ``size`` bytes: long ones, in nested directories."""
    found = {ROOT: Record(DIRECTORY, "", None)}
    for number in range(max(1, size // BYTES_A_NAME)):
        above = b"/".join([b"%d" % (number % 5)] * (1 + number % 4))
        found[above] = Record(DIRECTORY, "", None, 0o700)
        found[above + b"/%048d" % number] = Record(PLAIN, blob_id(b"%d" % number), None, 0o600)
    return found


def keep(manifest: Manifest) -> None:
    """Write, read and rebuild a manifest."""
    place = base()
    manifests.save(place, "0" * 64, manifest)
    loaded = manifests.load(place, "0" * 64)
    assert loaded is not None
    manifests.save(place, "2" * 64, loaded)
    manifests.save(place, "1" * 64, {p: r for p, r in manifest.items() if p == ROOT or not r.is_directory})
    manifests.load_differing(place, "0" * 64, "1" * 64)
    files = {path: record for path, record in manifest.items() if not record.is_directory}
    manifests.with_listing(files, b"".join(manifests.Listing(manifest)))
    shutil.rmtree(place)


def compared(manifest: Manifest) -> None:
    """Compare a manifest with one in which every name differs."""
    other = {p: r if p == ROOT else r._replace(permissions=0o711) for p, r in list(manifest.items())[::2]}
    other = {ROOT: manifest[ROOT], **other}
    compare(manifest, other, lambda _: "executor")
    patch_of(manifest, other, "below", limit=1 << 30)


def masked(name: bytes) -> None:
    """Hand the name to all that names go through on their way to git and back."""
    for path in (name, name + b"/x", b"x/" + name):
        unmask(mask(path, PLAIN))
        quoted(path)


def keyed(text: str) -> None:
    """Hand text to where a key is expected."""
    try:
        checked_key(text)
    except SubletError:
        return


def worked_on(size: int) -> StagedBench:
    """Return a sealed result that adds, changes and removes files and directories."""
    bench = StagedBench(base())
    count = max(2, size // 512)
    for number in range(count):
        bench.write(f"d{number % 5}/f{number}", "one\ntwo\n")
        (bench.root / f"gone{number}/in").mkdir(parents=True)
    with bench.work() as view:
        for number in range(count):
            write(view, f"d{number % 5}/f{number}", "one\n2\n")
            write(view, f"new{number}/f", "n")
            (view / f"gone{number}/in").rmdir()
            (view / f"gone{number}").rmdir()
            (view / f"d{number % 5}").chmod(0o711)
    return bench


def applied(bench: StagedBench) -> None:
    """Review the result, apply it and take it back."""
    bench.applier.preview(KEY, bench.rules)
    not_carried(bench.changes, KEY)
    bench.applier.apply(KEY, bench.rules, allow_mass_deletion=True)
    bench.applier.undo(KEY)
    bench.changes.discard(KEY)
    shutil.rmtree(bench.root.parent)


def staged(root: Path) -> None:
    """Copy a tree into a view, change all of it, and take the result out."""
    bench = StagedBench(base())
    bench.root.rmdir()
    root.rename(bench.root)
    with bench.work() as view:
        for path in list(view.rglob("*")):
            if path.is_file():
                path.write_text("changed")
    bench.changes.discard(KEY)
    shutil.rmtree(bench.root.parent)


def nested(size: int) -> Path:
    """Return a directory with directories below it."""
    root = base()
    for number in range(max(1, size // BYTES_A_NAME)):
        (root / f"{number % 9}/{number}").mkdir(parents=True)
    return root


def measured(root: Path) -> None:
    """Open what is shut in a tree."""
    fd = os.open(root.parent, os.O_RDONLY)
    try:
        open_up(fd, os.fsencode(root.name), root.lstat())
    finally:
        os.close(fd)
    shutil.rmtree(root)


@contextmanager
def many_names() -> Iterator[object]:
    """An executor that makes many long names, and the auditor after its lease."""
    place = base()
    lease = AuditedLease(place)
    try:
        with lease.work() as executor:
            for number in range(400):
                executor.write(b"%0200d" % number, b"x" * 1000)
        lease.audit()
        yield lease.auditor
    finally:
        shutil.rmtree(place)


async def torn_snapshots() -> None:
    """Files of earlier snapshots are torn or gone; the next lease is audited all the same."""
    place = base()
    try:
        await anyio.to_thread.run_sync(_torn, place)
    finally:
        shutil.rmtree(place)


def _torn(place: Path) -> None:
    lease = AuditedLease(place)
    lease.write("f", "x")
    with lease.work():
        pass
    [shadow] = (place / "state/shadows").iterdir()
    for manifest in (shadow / "manifests").iterdir():
        manifest.write_bytes(b"sublet-manifest-2 torn")
    (shadow / "head").write_bytes(b"\xff" * 64)
    with lease.work() as executor:
        executor.write(b"f", b"y")
    assert [file.path for file in lease.audit().files] == [b"f"]
    shutil.rmtree(shadow / "git")
    with lease.work() as executor:
        executor.write(b"f", b"z")
    assert [file.path for file in lease.audit().files] == [b"f"]
    half = place / "state/shadows/gone-half"
    half.mkdir()
    assert [kept.workspace for kept in Auditor(place / "state").kept()] == [lease.root]
    assert not half.exists()
    lease.auditor.forget(lease.root)
    lease.auditor.forget(lease.root)
    assert lease.auditor.kept() == []


async def files_that_block() -> None:
    """A FIFO in the view, and one in place of what a result would be merged with, block nobody."""
    place = base()
    try:
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(_fifos, place, abandon_on_cancel=True)
    finally:
        shutil.rmtree(place)


def _fifos(place: Path) -> None:
    bench = StagedBench(place)
    bench.write("f", "one\n")
    bench.write("g", "one\n")
    bench.write("h", "one\ntwo\nthree\n")
    with bench.work() as view:
        write(view, "h", "1\ntwo\nthree\n")
        write(view, "f", "two\n")
        write(view, "g", "two\n")
        os.mkfifo(view / "pipe")
    (bench.root / "f").unlink()
    os.mkfifo(bench.root / "f")
    bench.write("h", "one\ntwo\n3\n")
    preview = bench.applier.preview(KEY, bench.rules)
    assert {conflict.path for conflict in preview.conflicts} == {b"f", b"pipe"}
    bench.applier.apply(KEY, bench.rules, partial=True, allow_mass_deletion=True)
    assert (bench.read("g"), bench.read("h")) == ("two\n", "1\ntwo\n3\n")
    bench.applier.undo(KEY)
    assert bench.read("g") == "one\n"
    path = bench.state / "changes" / KEY / "change-set.json"
    path.write_text("{")
    try:
        records.load(path.parent, KEY)
    except SubletError:
        bench.changes.discard(KEY)
        return
    raise AssertionError("half a record was believed")


PROBES: Sequence[Probe] = (
    CostProbe(
        name="audit: a tree of many names",
        covers=(
            "workspace.audit.snapshot:take",
            "workspace.audit.snapshot:_Reader.read",
            "workspace.audit.snapshot:_Reader.record",
            "workspace.audit.snapshot:_Reader._pieces",
            "workspace.view.walk:walk",
            "workspace.view.walk:open_root",
        ),
        make=tree_of,
        run=snapshot_of,
        size=16_384,
    ),
    CostProbe(
        name="audit: manifests written, read and rebuilt",
        covers=(
            "workspace.audit.manifest:save",
            "workspace.audit.manifest:load",
            "workspace.audit.manifest:load_differing",
            "workspace.audit.manifest:Listing.__iter__",
            "workspace.audit.manifest:_opened",
            "workspace.audit.manifest:_split",
            "workspace.audit.manifest:with_listing",
            "workspace.audit.path_tree:PathTree._branches",
        ),
        make=manifest_of,
        run=keep,
        size=32_768,
    ),
    CostProbe(
        name="audit: manifests compared",
        covers=(
            "workspace.audit.comparing:compare",
            "workspace.audit.comparing:patch_of",
            "workspace.audit.path_tree:differing",
        ),
        make=manifest_of,
        run=compared,
        size=32_768,
    ),
    CostProbe(
        name="audit: a name that git refuses",
        covers=(
            "workspace.audit.shadow_git:mask",
            "workspace.audit.shadow_git:unmask",
            "workspace.audit.shadow_git:quoted",
            "workspace.audit.shadow_git:_MASKED",
            "workspace.audit.shadow_git:_REFUSED",
            "workspace.audit.shadow_git:_REFUSED_LINK",
        ),
        make=lambda size: b"%" * size + b".git/" + b"%" * size + b".gitmodules",
        run=masked,
    ),
    CostProbe(
        name="changes: a key",
        covers=("workspace.staging.staged_result:checked_key", "workspace.staging.staged_result:_KEY"),
        make=lambda size: "a" * size,
        run=keyed,
    ),
    CostProbe(
        name="changes: a view copied, changed and sealed",
        covers=(
            "workspace.staging.copy:_Copy._file",
            "workspace.file_copy:copy_content",
            "workspace.file_copy:_copy_range",
            "workspace.staging.private_views:Staging.open",
            "workspace.staging.private_views:Staging.discard",
            "workspace.changes.change_set:ChangeSets.seal",
            "workspace.changes.change_set:ChangeSets.discard",
            "workspace.changes.change_set:_Sealing.stored",
            "workspace.changes.change_set:_Sealing._copy",
            "workspace.changes.change_set:_Sealing.finish",
            "workspace.audit.shadow:lock",
            "workspace.git_runner:finish_git",
            "workspace.git_runner:start_git",
        ),
        make=tree_of,
        run=staged,
        size=4096,
    ),
    CostProbe(
        name="changes: a result reviewed, applied and taken back",
        covers=(
            "workspace.changes.apply:Applier.apply_all",
            "workspace.changes.apply:Applier._scratch",
            "workspace.changes.apply:Applier._settle_undo",
            "workspace.changes.apply_dir:ApplyDir.make",
            "workspace.changes.apply_dir:ApplyDir.open",
            "workspace.changes.apply_dir:ApplyDir.keep",
            "workspace.changes.apply_dir:ApplyDir.remove",
            "workspace.changes.apply_dir:ApplyDir._file",
            "workspace.changes.apply_dir:ApplyDir._directory",
            "workspace.changes.apply_dir:ApplyDir._attributes",
            "workspace.changes.edits:order",
            "workspace.changes.edits:fit",
            "workspace.changes.edits:add_above",
            "workspace.changes.merge:Merger.run",
            "workspace.changes.transaction:Transaction.forward",
            "workspace.changes.transaction:_as_expected",
            "workspace.changes.transaction:_set_permissions",
            "workspace.changes.transaction:finish",
            "workspace.changes.together:Together.commit",
            "workspace.changes.together:forget",
            "workspace.changes.tree:Tree.open_nearest",
            "workspace.changes.undo:wanted_by_undo",
        ),
        make=worked_on,
        run=applied,
        size=8192,
    ),
    CostProbe(
        name="bounds: a tree that was shut",
        covers=("workspace.confined.bounds:open_up",),
        make=nested,
        run=measured,
    ),
    KeptProbe(
        name="audit: many long names",
        covers=(
            "workspace.audit.auditor:Auditor.__init__",
            "workspace.audit.auditor:Auditor.result",
            "workspace.audit.auditor:Auditor.baseline",
        ),
        attack=many_names,
    ),
    FailureProbe(
        name="audit: snapshots that are torn",
        covers=(
            "workspace.audit.auditor:Auditor.forget",
            "workspace.audit.auditor:Auditor.kept",
            "workspace.audit.shadow:Shadow.head",
            "workspace.audit.shadow:Shadow.manifest",
            "workspace.audit.shadow_git:_OBJECT_ID",
            "workspace.audit.shadow_git:checked_id",
        ),
        throw=torn_snapshots,
    ),
    FailureProbe(
        name="changes: files that block, and half a record",
        covers=(
            "workspace.changes.tree:Tree.look_in",
            "workspace.changes.tree:Tree.read",
            "workspace.changes.record:load",
            "workspace.changes.record:remove",
        ),
        throw=files_that_block,
    ),
)

"""What an executor does that the audit should not see; it is seen, told, applied and taken back."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from attacks.kit.audited_lease import OK, AuditedLease, Executor, account, names_of, plain_account
from sublet.policy.limits import MAX_FILES
from sublet.protocol.errors import SubletError
from sublet.workspace.audit import auditor, snapshot
from sublet.workspace.audit.manifest import Manifest, load
from sublet.workspace.audit.reporting import AuditResult
from sublet.workspace.changes import merge
from sublet.workspace.changes.export import not_carried
from sublet.workspace.confined.bounds import MAX_DEPTH
from sublet.workspace.staging.staged_result import DirectoryChange
from sublet.workspace.view.walk import Directory
from support.apply_unprivileged import NOBODY
from support.budgets import examples
from support.staged import KEY, StagedBench, write

ACL = "system.posix_acl_access"
SUPPORT = Path(__file__).parent.parent / "support"


@pytest.fixture
def lease(tmp_path: Path) -> AuditedLease:
    return AuditedLease(tmp_path)


@pytest.fixture
def bench(tmp_path: Path) -> StagedBench:
    return StagedBench(tmp_path)


def directories(report: AuditResult) -> dict[str, str]:
    return {one.shown: one.change for one in report.directories}


# Directories and permissions, live


def test_directories_made_removed_and_renamed_are_in_the_audit(lease: AuditedLease) -> None:
    for name in ("gone", "old", "old/inner"):
        (lease.root / name).mkdir()
    with lease.work() as executor:
        assert executor.mkdir(b"empty") == OK
        assert executor.rmdir(b"gone") == OK
        assert executor.rename(b"old", b"new") == OK
    report = lease.audit()
    assert report.files == ()
    assert directories(report) == {
        "empty/": "added",
        "gone/": "deleted",
        "new/": "added",
        "new/inner/": "added",
        "old/": "deleted",
        "old/inner/": "deleted",
    }
    assert report.directory_counts == {"added": 3, "deleted": 3}
    assert {one.by for one in report.directories} == {"executor"}
    patch = lease.patch(report)
    assert "diff --directory empty/\nnew directory mode 0755\n" in patch
    assert "diff --directory gone/\ndeleted directory mode 0755\n" in patch


def test_modes_of_directories_and_files_are_in_the_audit(lease: AuditedLease) -> None:
    lease.write("d/f", "x")
    lease.write("tool", "x")
    (lease.root / "d").chmod(0o700)
    with lease.work() as executor:
        assert executor.chmod(b"d", 0o777) == OK
        assert executor.fchmod(b"d/f", 0o666) == OK
        assert executor.chmod(b"tool", 0o755) == OK
    report = lease.audit()
    assert account(report) == (
        {b"d/f": ("mode", 0o644, 0o666), b"tool": ("mode", 0o644, 0o755)},
        {b"d": ("mode", 0o700, 0o777)},
    )
    patch = lease.patch(report)
    assert "diff --directory d/\nold mode 0700\nnew mode 0777\n" in patch
    assert "diff --mode d/f\nold mode 0644\nnew mode 0666\n" in patch
    assert patch.count("old mode 100644\nnew mode 100755") == 1
    assert "diff --mode tool" not in patch


def test_two_leases_that_change_directories_only_keep_their_own_accounts(lease: AuditedLease) -> None:
    """The files of both snapshots are the same, so that one commit would stand for both."""
    with lease.work() as executor:
        executor.mkdir(b"one")
    first = lease.audit()
    with lease.work() as executor:
        executor.mkdir(b"two")
    second = lease.audit()
    assert len({first.baseline, first.result, second.result}) == 3
    assert second.baseline == first.result
    assert "one/" in lease.patch(first)
    assert "two/" not in lease.patch(first)
    assert "one/" not in lease.patch(second)


def test_a_snapshot_whose_manifest_was_pruned_still_knows_directories_and_modes(
    lease: AuditedLease, tmp_path: Path
) -> None:
    lease.write("d/f", "x", 0o600)
    lease.write("d/run", "x", 0o755)
    (lease.root / "empty").mkdir(mode=0o711)
    with lease.work() as executor:
        executor.chmod(b"d", 0o750)
        executor.rmdir(b"empty")
        executor.chmod(b"d/f", 0o640)
    [manifests] = tmp_path.glob("state/shadows/*/manifests")
    shutil.rmtree(manifests)
    manifests.mkdir()
    assert account(lease.audit()) == (
        {b"d/f": ("mode", 0o600, 0o640)},
        {b"d": ("mode", 0o755, 0o750), b"empty": ("deleted", 0o711, None)},
    )


def test_a_baseline_of_the_first_version_is_compared_as_far_as_it_says_and_told(
    lease: AuditedLease, tmp_path: Path
) -> None:
    lease.write("d/f", "x")
    with lease.work() as executor:
        executor.write(b"d/f", b"y")
        executor.chmod(b"d", 0o711)
    [path] = tmp_path.glob("state/shadows/*/manifests/*")
    manifest = load(path.parent, path.name)
    assert manifest is not None
    path.write_bytes(_first_version(manifest))
    report = lease.audit()
    assert account(report) == ({b"d/f": ("changed", None, 0o644)}, {})
    assert report.unaudited == ((b".", "directories and permissions were not recorded before the lease"),)


def _first_version(manifest: Manifest) -> bytes:
    import hashlib

    body = b"".join(
        b"%o %s - - - - %s\0" % (record.mode, record.blob.encode(), path)
        for path, record in manifest.items()
        if not record.is_directory
    )
    return b"sublet-manifest-1 " + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


# Staged


def test_a_staged_result_of_directories_and_modes_is_reviewed_applied_and_undone(bench: StagedBench) -> None:
    bench.write("f", "same", 0o644)
    bench.write("kept/inner", "x")
    (bench.root / "gone").mkdir(mode=0o700)
    (bench.root / "gone").chmod(0o700)
    before = bench.state_of()
    with bench.work() as view:
        (view / "made/deep").mkdir(parents=True)
        (view / "made").chmod(0o511)
        (view / "gone").rmdir()
        (view / "kept").chmod(0o750)
        (view / "f").chmod(0o600)
    shown = bench.changes.get(KEY)
    assert shown.directories == (
        DirectoryChange(b"gone", 0o700, None),
        DirectoryChange(b"kept", 0o755, 0o750),
        DirectoryChange(b"made", None, 0o511),
        DirectoryChange(b"made/deep", None, 0o755),
    )
    counts = shown.counts
    assert (counts.directories_added, counts.directories_deleted, counts.directories_mode_changed) == (2, 1, 1)
    assert [(f.path, f.change, f.mode_before, f.mode_after) for f in shown.files] == [(b"f", "mode", 0o644, 0o600)]
    assert "deleted directory mode 0700" in bench.changes.patch(KEY).text
    preview = bench.applier.preview(KEY, bench.rules)
    assert preview.clean == (b"f",)
    assert preview.directories == dict.fromkeys((b"gone", b"kept", b"made", b"made/deep"), "clean")
    applied = bench.applier.apply(KEY, bench.rules)
    assert applied.paths == (b"f",)
    assert applied.directories == (b"gone", b"kept", b"made", b"made/deep")
    after = bench.state_of()
    assert {path: entry[0] & 0o7777 for path, entry in after.items()} == {
        "f": 0o600,
        "kept": 0o750,
        "kept/inner": 0o644,
        "made": 0o511,
        "made/deep": 0o755,
    }
    undone = bench.applier.undo(KEY)
    assert undone.directories == applied.directories
    assert bench.state_of() == before


def test_a_directory_that_became_a_file_is_told_as_both(bench: StagedBench) -> None:
    (bench.root / "x").mkdir()
    with bench.work() as view:
        (view / "x").rmdir()
        write(view, "x", "now a file")
    preview = bench.applier.preview(KEY, bench.rules)
    assert preview.clean == (b"x",)
    assert preview.directories == {b"x": "clean"}
    applied = bench.applier.apply(KEY, bench.rules)
    assert (applied.paths, applied.directories) == ((b"x",), (b"x",))


def test_permissions_merge_bit_by_bit_with_the_lenders(bench: StagedBench) -> None:
    bench.write("f", "same", 0o644)
    bench.write("d/x", "x")
    with bench.work() as view:
        (view / "f").chmod(0o755)
        (view / "d").chmod(0o775)
    (bench.root / "f").chmod(0o640)
    (bench.root / "d").chmod(0o705)
    bench.applier.apply(KEY, bench.rules)
    assert (bench.root / "f").stat().st_mode & 0o777 == 0o751
    assert (bench.root / "d").stat().st_mode & 0o777 == 0o725
    bench.applier.undo(KEY)
    assert (bench.root / "f").stat().st_mode & 0o777 == 0o640
    assert (bench.root / "d").stat().st_mode & 0o777 == 0o705


def test_a_file_that_is_written_anew_does_not_show_others_what_it_kept_from_them(bench: StagedBench) -> None:
    bench.write("key", "old", 0o600)
    with bench.work() as view:
        write(view, "key", "new", 0o644)
    [file] = bench.changes.get(KEY).files
    assert (file.mode_before, file.mode_after) == (0o600, 0o600)
    bench.applier.apply(KEY, bench.rules)
    assert (bench.root / "key").stat().st_mode & 0o777 == 0o600


def test_a_removed_directory_that_holds_something_else_by_now_stays_and_is_told(bench: StagedBench) -> None:
    (bench.root / "d").mkdir()
    with bench.work() as view:
        (view / "d").rmdir()
    bench.write("d/mine", "m")
    assert bench.applier.preview(KEY, bench.rules).directories == {b"d": "stays"}
    applied = bench.applier.apply(KEY, bench.rules)
    assert (applied.paths, applied.directories) == ((), ())
    assert bench.read("d/mine") == "m"


def test_removing_most_directories_has_to_be_allowed(bench: StagedBench) -> None:
    bench.write("f", "f")
    for number in range(merge.MANY_DELETIONS + 5):
        (bench.root / f"d{number}").mkdir()
    with bench.work() as view:
        for number in range(merge.MANY_DELETIONS + 3):
            (view / f"d{number}").rmdir()
    before = bench.state_of()
    assert bench.applier.preview(KEY, bench.rules).mass_deletion == "it would remove 53 of 55 directories"
    with pytest.raises(SubletError, match="53 of 55 directories"):
        bench.applier.apply(KEY, bench.rules)
    assert bench.state_of() == before
    bench.applier.apply(KEY, bench.rules, allow_mass_deletion=True)
    assert sorted(os.listdir(bench.root)) == ["d53", "d54", "f"]


def test_renaming_most_directories_is_no_mass_deletion(bench: StagedBench) -> None:
    for number in range(merge.MANY_DELETIONS + 5):
        (bench.root / f"a/d{number}").mkdir(parents=True)
    with bench.work() as view:
        (view / "a").rename(view / "b")
    assert bench.applier.preview(KEY, bench.rules).mass_deletion == ""
    bench.applier.apply(KEY, bench.rules)
    assert sorted(os.listdir(bench.root)) == ["b"]


def test_what_git_cannot_carry_is_told(bench: StagedBench) -> None:
    bench.write("f", "same")
    bench.write("d/x", "x")
    with bench.work() as view:
        (view / "empty").mkdir()
        write(view, "full/file", "x")
        (view / "d").chmod(0o700)
        (view / "f").chmod(0o600)
    assert not_carried(bench.changes, KEY) == [
        "d/: its permissions",
        "empty/: a directory without files, added",
        "f: its permissions",
    ]


def test_a_change_set_of_the_first_version_is_still_applied(bench: StagedBench) -> None:
    bench.write("f", "same")
    (bench.root / "gone").mkdir()
    with bench.work() as view:
        (view / "gone").rmdir()
        (view / "made").mkdir(mode=0o700)
        (view / "f").chmod(0o755)
    path = bench.state / "changes" / KEY / "change-set.json"
    found = json.loads(path.read_bytes())
    del found["directories"], found["baseline_directories"]
    found["directories_added"], found["directories_removed"] = [["made", 0o700]], ["gone"]
    for entry in found["entries"]:
        del entry["permissions_before"]
    for name in ("directories_added", "directories_deleted", "directories_mode_changed"):
        del found["counts"][name]
    path.write_text(json.dumps(found))
    bench.applier.apply(KEY, bench.rules)
    assert sorted(os.listdir(bench.root)) == ["f", "made"]
    assert (bench.root / "f").stat().st_mode & 0o777 == 0o755
    bench.applier.undo(KEY)
    assert sorted(os.listdir(bench.root)) == ["f", "gone"]


def test_a_view_that_the_first_version_began_is_sealed_with_its_directories(bench: StagedBench) -> None:
    (bench.root / "gone").mkdir()
    view = bench.begin()
    begun = bench.state / "changes" / KEY / "begun.json"
    found = json.loads(begun.read_bytes())
    [path] = bench.state.glob(f"shadows/*/manifests/{found['baseline']}")
    manifest = load(path.parent, path.name)
    assert manifest is not None
    path.write_bytes(_first_version(manifest))
    begun.write_text(json.dumps({**found, "directories": [["gone", 0o755]]}))
    (view / "gone").rmdir()
    (view / "made").mkdir()
    assert bench.seal().directories == (
        DirectoryChange(b"gone", 0o755, None),
        DirectoryChange(b"made", None, 0o755),
    )


# Too deep to be looked at


def deep(levels: int) -> bytes:
    return b"/".join([b"d"] * levels)


def test_nothing_is_made_deeper_than_the_audit_reads(lease: AuditedLease) -> None:
    (lease.root / os.fsdecode(deep(MAX_DEPTH - 1))).mkdir(parents=True)
    with lease.work() as executor:
        assert executor.mkdir(deep(MAX_DEPTH)) == OK
        assert executor.mkdir(deep(MAX_DEPTH + 1)) != OK
        assert executor.write(deep(MAX_DEPTH) + b"/f", b"deep") == OK
    report = lease.audit()
    assert report.unaudited == ()
    assert [f.path for f in report.files] == [deep(MAX_DEPTH) + b"/f"]


def test_no_directory_is_moved_to_where_its_inside_is_too_deep(lease: AuditedLease) -> None:
    (lease.root / os.fsdecode(deep(150))).mkdir(parents=True)
    (lease.root / os.fsdecode(b"t/" + deep(MAX_DEPTH - 151))).mkdir(parents=True)
    lease.write(os.fsdecode(b"t/" + deep(MAX_DEPTH - 151) + b"/f"), "deep")
    with lease.work() as executor:
        assert executor.mkdir(b"t/" + deep(MAX_DEPTH - 151) + b"/more") == OK
        assert executor.rename(b"t", deep(150) + b"/t") != OK
        assert executor.rmdir(b"t/" + deep(MAX_DEPTH - 151) + b"/more") == OK
        assert executor.rename(b"t", deep(150) + b"/t") == OK
    report = lease.audit()
    assert report.unaudited == ()
    assert {f.change for f in report.files} == {"added", "deleted"}


def test_what_the_lender_has_too_deep_is_not_changed_and_is_told(lease: AuditedLease) -> None:
    place = lease.root / os.fsdecode(deep(230))
    place.mkdir(parents=True)
    (place / "f").write_text("mine")
    with lease.work() as executor:
        # Its whole path can be named, so that only the bound stops it.
        assert executor.write(deep(230) + b"/f", b"theirs") != OK
        assert executor.remove(deep(230) + b"/f") != OK
        assert executor.chmod(deep(230) + b"/f", 0o600) != OK
        assert executor.write(deep(230) + b"/new", b"theirs") != OK
    assert (place / "f").read_text() == "mine"
    assert lease.audit().unaudited == ((deep(MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH} directories"),)


# Shut against the audit


@pytest.mark.parametrize("mode", [0o311, 0o000, 0o411, 0o200])
def test_modes_that_would_blind_the_audit_are_refused(lease: AuditedLease, mode: int) -> None:
    lease.write("bin/tool", "old", 0o755)
    with lease.work() as executor:
        assert executor.chmod(b"bin", mode) != OK
        if not mode & 0o400:
            assert executor.chmod(b"bin/tool", mode) != OK
            assert executor.fchmod(b"bin/tool", mode) != OK
        assert executor.mkdir(b"made", mode) == OK
        assert executor.write(b"made/file", b"x", mode) == OK
    assert (lease.root / "bin").stat().st_mode & 0o777 == 0o755
    assert (lease.root / "bin/tool").stat().st_mode & 0o400
    assert (lease.root / "made").stat().st_mode & 0o500 == 0o500
    assert (lease.root / "made/file").stat().st_mode & 0o400
    assert lease.audit().unaudited == ()


def test_a_directory_that_is_shut_already_may_get_any_mode_that_shuts_it_no_further(lease: AuditedLease) -> None:
    lease.write("shut/f", "x")
    (lease.root / "shut").chmod(0o311)
    with lease.work() as executor:
        assert executor.chmod(b"shut", 0o300) == OK
        assert executor.chmod(b"shut", 0o700) == OK
        assert executor.chmod(b"shut", 0o300) != OK


def run_as_nobody(module: str, tmp_name: str) -> None:
    """Run a script of ``tests/support`` that gives up root, in a directory that nobody else's rules apply to."""
    if os.geteuid() != 0:
        pytest.skip("the other tests run unprivileged already")
    base = Path("/tmp") / f"sublet-{tmp_name}-{os.getpid()}"
    base.mkdir(mode=0o755)
    try:
        os.chown(base, NOBODY, NOBODY)
        done = subprocess.run(
            [sys.executable, str(SUPPORT / module), str(base)],
            env={**os.environ, "PYTHONPATH": str(SUPPORT.parent)},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    finally:
        shutil.rmtree(base)


def test_an_ordinary_lender_sees_what_an_executor_shut(tmp_path: Path) -> None:
    """Modes stop an ordinary user, so that they would hide what is in a directory from the audit."""
    run_as_nobody("audit_unprivileged.py", "audit")


# Other ways to change something unseen


def test_every_change_of_kind_is_told(lease: AuditedLease) -> None:
    lease.write("file-to-dir", "x")
    lease.write("file-to-link", "x")
    (lease.root / "dir-to-file").mkdir()
    (lease.root / "link").symlink_to("file-to-link")
    (lease.root / "link-to-file").symlink_to("nowhere")
    before = names_of(lease.root)
    with lease.work() as executor:
        executor.remove(b"file-to-dir")
        executor.mkdir(b"file-to-dir")
        executor.remove(b"file-to-link")
        executor.symlink(b"link", b"file-to-link")
        executor.rmdir(b"dir-to-file")
        executor.write(b"dir-to-file", b"x")
        executor.remove(b"link")
        executor.symlink(b"elsewhere", b"link")
        executor.remove(b"link-to-file")
        executor.write(b"link-to-file", b"nowhere")
    report = lease.audit()
    assert account(report) == plain_account(before, names_of(lease.root))
    assert {path: entry[0] for path, entry in account(report)[0].items()} == {
        b"file-to-dir": "deleted",
        b"file-to-link": "changed",
        b"dir-to-file": "added",
        b"link": "changed",
        b"link-to-file": "changed",
    }


def test_a_hard_link_and_a_name_in_another_case_are_names_of_their_own(lease: AuditedLease) -> None:
    lease.write("f", "x")
    with lease.work() as executor:
        assert executor.link(b"f", b"F") == OK
        assert executor.mkdir(b"D") == OK
        assert executor.mkdir(b"d") == OK
    report = lease.audit()
    assert [f.path for f in report.files] == [b"F"]
    assert [d.path for d in report.directories] == [b"D", b"d"]


def test_a_time_that_is_put_back_hides_no_change(lease: AuditedLease) -> None:
    file = lease.write("f", "old")
    os.utime(file, (1_000_000_000, 1_000_000_000))
    with lease.work() as executor:
        executor.write(b"f", b"new")
        executor.touch(b"f", 1_000_000_000)
    assert account(lease.audit())[0] == {b"f": ("changed", 0o644, 0o644)}


def test_names_that_steer_a_terminal_are_shown_as_text(lease: AuditedLease) -> None:
    names = [b"esc\x1b[2Jape", b"new\nline", b"x\ndiff --git x x\nnew file mode 100644", b"\xff\xfe", b'quo"te\\']
    with lease.work() as executor:
        for name in names:
            assert executor.mkdir(name) == OK
            assert executor.write(name + b"/f", b"x") == OK
            assert executor.chmod(name + b"/f", 0o600) == OK
    report = lease.audit()
    assert {d.path for d in report.directories} == set(names)
    text = lease.patch(report)
    for shown in [*(d.shown for d in report.directories), *(f.shown for f in report.files)]:
        assert shown.isprintable()
    assert "\x1b" not in text
    heads = [line for line in text.split("\n") if line.startswith(("diff --directory", "diff --git"))]
    assert len(heads) == 2 * len(names)


def test_a_file_that_changes_while_it_is_read_is_read_again_next_time(
    lease: AuditedLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = lease.write("f", "a" * 100)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    pieces = snapshot._Reader._pieces

    def changing(self: snapshot._Reader, fd: int, size: int) -> object:
        file.write_text("b" * 100)
        os.utime(file, (1_000_000_000, 1_000_000_000))
        return pieces(self, fd, size)

    with monkeypatch.context() as patched:
        patched.setattr(snapshot._Reader, "_pieces", changing)
        with lease.work():
            pass
    file.write_text("c" * 100)
    os.utime(file, (1_000_000_000, 1_000_000_000))
    assert [f.change for f in lease.audit().files] == ["changed"]


def test_a_directory_that_is_swapped_for_a_link_while_it_is_walked_leads_nowhere(
    lease: AuditedLease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("outside")
    lease.write("a/f", "x")
    lease.write("b/f", "x")
    directory = snapshot._Reader._directory

    def swapping(self: snapshot._Reader, found: Directory) -> None:
        directory(self, found)
        if found.parts == (b"a",):
            shutil.rmtree(lease.root / "b")
            (lease.root / "b").symlink_to(outside)

    with lease.work():
        pass
    with monkeypatch.context() as patched:
        patched.setattr(snapshot._Reader, "_directory", swapping)
        report = lease.audit()
    assert (lease.root / "b").is_symlink()
    assert not any(b"secret" in f.path for f in report.files)
    assert "outside" not in lease.patch(report)


def test_names_as_long_and_deep_as_can_be_are_all_audited(lease: AuditedLease) -> None:
    # With the directories above it each name has 3.6 KB, all together 144 MB.
    with lease.work() as executor:
        deep = b""
        for _ in range(14):
            deep += b"y" * 240 + b"/"
            assert executor.mkdir(deep.rstrip(b"/")) == OK
        below = os.open(os.fsencode(lease.root) + b"/" + deep, os.O_RDONLY)
        for directory in range(20):  # what a mount would send, without the hour of it
            os.mkdir(b"%d" % directory, dir_fd=below)
            for number in range(2_000):
                name = b"%d/%d" % (directory, number) + b"z" * 200
                os.close(os.open(name, os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(below)
    report = lease.audit()
    assert (report.counts["added"], report.unaudited) == (40_000, ())


def test_what_a_lease_may_add_is_audited_also_where_as_much_is_lent_as_may_be(
    lease: AuditedLease, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditor, "MAX_LENT_ENTRIES", 3)
    for number in range(3):
        lease.write(f"lent-{number}")
    with lease.work() as executor:
        for number in range(9):
            assert executor.write(b"added-%d" % number, b"x") == OK
    assert len(lease.audit().files) == 9
    with pytest.raises(SubletError, match="more than 3"), lease.work():
        pass
    assert snapshot.MAX_ENTRIES >= snapshot.MAX_LENT_ENTRIES + MAX_FILES, "the whole quota, which policy bounds"


# Git sees objects of ours alone


def test_git_is_given_nothing_of_the_lent_directory(
    lease: AuditedLease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.write("f", "x")
    subprocess.run(["git", "init", "-q", str(lease.root)], check=True)
    (lease.root / ".git/config").write_text("[core]\n\tfsmonitor = touch /tmp/never\n\tworktree = /\n")
    real = shutil.which("git")
    assert real is not None
    log = tmp_path / "git.log"
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    wrapper = bin_dir / "git"
    wrapper.write_text(f'#!/bin/sh\nprintf \'%s|%s|%s\\n\' "$PWD" "$GIT_DIR" "$*" >> {log}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}{os.pathsep}{os.environ['PATH']}")
    with lease.work() as executor:
        executor.write(b"f", b"y")
        executor.write(b".gitattributes", b"* diff=evil filter=evil\n")
    lease.patch(lease.audit())
    calls = [line.split("|") for line in log.read_text().splitlines()]
    assert calls
    for directory, git_dir, arguments in calls:
        assert git_dir.startswith(str(tmp_path / "state/shadows/"))
        assert directory == git_dir
        assert str(lease.root) not in arguments
        assert arguments.split()[0] in {"fast-import", "cat-file", "ls-tree", "diff-tree", "repack"}


def test_what_git_compares_is_bounded_in_time_and_bytes(lease: AuditedLease) -> None:
    """One line of megabytes, and one byte on every line."""
    with lease.work() as executor:
        executor.write(b"long", b"x" * (3 << 20))
        executor.write(b"many", b"\n".join([b"y"] * (1 << 20)))
    report = lease.audit()
    made = lease.auditor.patch(lease.root, report.baseline, report.result, limit=100_000)
    assert made.truncated
    assert len(made.text) <= 100_000


# What applying keeps


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """Return an access list as the kernel takes it: tag, permissions and id of each entry."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


def test_apply_keeps_group_access_list_and_attributes_of_what_it_replaces(bench: StagedBench) -> None:
    file = bench.write("f", "mine", 0o640)
    anyone = 0xFFFFFFFF
    wanted = access_list((1, 6, anyone), (2, 6, 1234), (4, 4, anyone), (16, 6, anyone), (32, 0, anyone))
    try:
        os.setxattr(file, ACL, wanted)
        os.setxattr(file, "user.note", b"mine")
    except OSError:
        pytest.skip("the file system has no access lists")
    if os.geteuid() == 0:
        os.chown(file, 1, 2)
    with bench.work() as view:
        write(view, "f", "theirs", 0o660)
    bench.applier.apply(KEY, bench.rules)
    assert bench.read("f") == "theirs"
    assert os.getxattr(file, ACL) == wanted
    assert os.getxattr(file, "user.note") == b"mine"
    if os.geteuid() == 0:
        assert (file.stat().st_uid, file.stat().st_gid) == (1, 2)
    bench.applier.undo(KEY)
    assert bench.read("f") == "mine"
    assert os.getxattr(file, ACL) == wanted


def test_a_new_name_gets_what_its_directory_gives_to_new_names(bench: StagedBench) -> None:
    shared = bench.root / "shared"
    shared.mkdir()
    anyone = 0xFFFFFFFF
    wanted = access_list((1, 7, anyone), (2, 7, 1234), (4, 5, anyone), (16, 7, anyone), (32, 0, anyone))
    try:
        os.setxattr(shared, "system.posix_acl_default", wanted)
    except OSError:
        pytest.skip("the file system has no access lists")
    with bench.work() as view:
        write(view, "shared/new/f", "theirs", 0o664)
    bench.applier.apply(KEY, bench.rules)
    assert os.getxattr(shared / "new", "system.posix_acl_default") == wanted
    assert ACL in os.listxattr(shared / "new/f")


def test_what_cannot_be_applied_names_the_file(bench: StagedBench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write("d/f", "mine")
    with bench.work() as view:
        write(view, "d/f", "theirs")
        (view / "empty").mkdir()
    real = os.chown

    def full(*arguments: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "chown" if os.geteuid() == 0 else "fchmod", full)
    with pytest.raises(SubletError, match=r"(empty|d/f): No space left on device"):
        bench.applier.apply(KEY, bench.rules)
    monkeypatch.setattr(os, "chown", real)
    assert bench.read("d/f") == "mine"


# The whole account equals a plain comparison

NAMES = st.sampled_from([b"a", b"b", b"c", b"a/a", b"a/b", b"b/a", b"a/a/a", b"\xff", b"n\nl"])
MODES = st.sampled_from([0o755, 0o700, 0o644, 0o600, 0o666, 0o777, 0o311, 0o000, 0o511])
CONTENTS = st.sampled_from([b"", b"x\n", b"y\n", b"\0\xff"])
OPERATIONS = st.one_of(
    st.tuples(st.just("write"), NAMES, CONTENTS),
    st.tuples(st.just("mkdir"), NAMES, MODES),
    st.tuples(st.just("chmod"), NAMES, MODES),
    st.tuples(st.just("rename"), NAMES, NAMES),
    st.tuples(st.just("link"), NAMES, NAMES),
    st.tuples(st.just("symlink"), st.sampled_from([b"a", b"b/a", b"nowhere"]), NAMES),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("rmdir"), NAMES),
)


def perform(executor: Executor, operation: tuple[object, ...]) -> None:
    getattr(executor, str(operation[0]))(*operation[1:])


@seed(20261129)
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(OPERATIONS, max_size=12), st.lists(OPERATIONS, max_size=25))
def test_the_account_equals_a_plain_comparison(
    tmp_path_factory: pytest.TempPathFactory, before: list[tuple[object, ...]], during: list[tuple[object, ...]]
) -> None:
    lease = AuditedLease(tmp_path_factory.mktemp("account"))
    with lease.work() as lender:  # a tree that any of these can make
        for operation in before:
            perform(lender, operation)
    was = names_of(lease.root)
    with lease.work() as executor:
        for operation in during:
            perform(executor, operation)
    report = lease.audit()
    assert account(report) == plain_account(was, names_of(lease.root))
    assert report.unaudited == ()
    assert report.by_others == []


@seed(20261129)
@settings(max_examples=examples(25), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(OPERATIONS, max_size=12), st.lists(OPERATIONS, max_size=20))
def test_a_result_applied_is_what_the_executor_left_and_undone_what_was(
    tmp_path_factory: pytest.TempPathFactory, before: list[tuple[object, ...]], during: list[tuple[object, ...]]
) -> None:
    base = tmp_path_factory.mktemp("applied")
    bench = StagedBench(base)
    maker = AuditedLease(base / "state")
    with maker.work() as lender:
        for operation in before:
            perform(lender, operation)
    shutil.rmtree(bench.root)
    shutil.copytree(maker.root, bench.root, symlinks=True)
    was = names_of(bench.root)
    view = bench.begin()
    shutil.rmtree(maker.root)
    maker.root.symlink_to(view)
    maker.root = view
    with maker.work() as executor:
        for operation in during:
            perform(executor, operation)
    left = names_of(view)
    bench.seal()
    applied = bench.applier.apply(KEY, bench.rules, allow_mass_deletion=True)
    assert applied.conflicts == ()
    now = names_of(bench.root)
    assert {p: e[::2] for p, e in now.items()} == {p: e[::2] for p, e in left.items()}
    assert [p for p, e in now.items() if e != left[p] and not _written_anew(was.get(p), e)] == []
    assert bench.applier.undo(KEY).conflicts == ()
    assert names_of(bench.root) == was


def _written_anew(old: tuple[str, int | None, bytes] | None, new: tuple[str, int | None, bytes]) -> bool:
    """Tell whether a file was written anew, of which the lender's permissions stay closed."""
    return old is not None and old[0] == new[0] == "file" and old[2] != new[2]

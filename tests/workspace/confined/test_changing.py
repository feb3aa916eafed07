"""What comes before a change: what is refused and told, copies, and what is kept of what was there."""

from __future__ import annotations

import errno
import os
import time
from functools import partial
from pathlib import Path

import pytest

from sublet.workspace.confined.bounds import MAX_DEPTH
from sublet.workspace.confined.changing import (
    DEEP,
    DRAFT,
    FULL,
    HIDDEN,
    LEFT_OUT,
    LOCKED,
    MOUNTED,
    NOT_MADE,
    READ_ONLY,
    SHUT,
)
from sublet.workspace.confined.copy_up import QUICK_BYTES
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.shared import CLOCK_NS
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota
from sublet.workspace.view.rules import DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.views import default_rules
from workspace.confined.leases import (
    ONLY_ADDS,
    Lend,
    code_of,
    parts,
    refused,
    touch,
)


def view_of(root: Path) -> WritableFs:
    """Return a view that has what takes long found out in another thread."""
    return WritableFs(ConfinedFs.open_root(root), default_rules(), Quota(), lambda _: None, patient=False)


def write(fs: WritableFs, name: bytes, text: bytes, *, learn_only: bool = False) -> None:
    """Write at the begin of a file; or only find out what is needed for it, up to the copy that it is given."""
    for _ in range(9):
        copies = len(fs._copies)
        file = None
        try:
            file = fs.open_write((*name.split(b"/"),), os.O_WRONLY, 0o644)
            file.write(text, 0)
        except NotKnownYet as unknown:
            unknown.learn()
            if learn_only and len(fs._copies) > copies:
                return
            continue
        finally:
            if file is not None:
                file.close()
        return
    raise AssertionError("what is to be found out changes all the time")


def test_a_copy_goes_into_the_directory_that_it_was_made_for(tmp_path: Path) -> None:
    """The same file under two names, and one outside: what waits for one name is not put in place of the other."""
    root = tmp_path / "lent"
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_bytes(b"o" * (QUICK_BYTES + 1))
    for name in ("a", "b"):
        (root / name / "same").hardlink_to(outside)
    fs = view_of(root)
    try:
        write(fs, b"a/same", b"theirs", learn_only=True)
        write(fs, b"b/same", b"theirs")
        assert (root / "b" / "same").read_bytes().startswith(b"theirs")
        assert (root / "a" / "same").samefile(outside)
        assert outside.read_bytes() == b"o" * (QUICK_BYTES + 1)
        assert sorted(os.listdir(root / "a")) == ["same"]
        assert sorted(os.listdir(root / "b")) == ["same"]
    finally:
        fs.close()


def test_a_copy_of_a_file_whose_mode_changed_is_made_anew(tmp_path: Path) -> None:
    root = tmp_path / "lent"
    root.mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"o" * (QUICK_BYTES + 1))
    outside.chmod(0o600)
    (root / "f").hardlink_to(outside)
    fs = view_of(root)
    try:
        write(fs, b"f", b"theirs", learn_only=True)
        outside.chmod(0o755)
        write(fs, b"f", b"theirs")
        assert (root / "f").stat().st_mode & 0o777 == 0o755
    finally:
        fs.close()


def test_a_directory_that_may_change_within_the_same_tick_is_listed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d").mkdir()
    fs = view_of(tmp_path)
    now = (tmp_path / "d").stat().st_ctime_ns
    try:
        for ago, kept in ((0, 0), (CLOCK_NS, 0), (CLOCK_NS + 1, 1)):
            monkeypatch.setattr(time, "time_ns", lambda ago=ago: now + ago)
            with fs._parent((b"d", b"x")) as directory:
                up = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=directory)
            try:
                fs._held.below(up, (b"d",), patient=True)
            finally:
                os.close(up)
            assert len(fs._held._listed) == kept
    finally:
        fs.close()


# What is refused, and how it is told


def test_what_is_refused_is_told_with_the_reason(root: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("left", "read"):
        (root / name).mkdir()
        (root / name / "f").write_bytes(b"1")
    (root / ".envrc").write_bytes(b"1")
    rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, (), exclude=("left",), writable=("a", "c", ".envrc"))
    lease = lend(rules)
    for path, reason in (
        ("left/f", LEFT_OUT),
        ("read/f", READ_ONLY),
        ("read/new.pem", READ_ONLY),
        ("a/new.pem", HIDDEN),
        (".envrc", LOCKED),
    ):
        refused(lease, touch(lease, path), path, reason)
    assert code_of(lambda: lease.fs.mkdir((), 0o700)) == errno.EACCES
    monkeypatch.setattr(lease.fs._mounts, "covers", lambda path: tuple(path) == (b"a", b"b", b"file"))
    refused(lease, touch(lease, "a/b/file"), "a/b/file", MOUNTED)


def test_what_is_left_out_is_not_said_to_be_locked(root: Path, lend: Lend) -> None:
    (root / "c/.envrc").write_bytes(b"1")
    lease = lend(Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, (), exclude=(".envrc",)))
    refused(lease, touch(lease, "c/.envrc"), "c/.envrc", LEFT_OUT)


def test_a_hidden_name_that_is_locked_as_well_is_said_to_be_locked(root: Path, lend: Lend) -> None:
    lease = lend(Rules(("*.x",), ("*.x",), ()))
    refused(lease, touch(lease, "c/new.x"), "c/new.x", LOCKED)
    refused(lease, lambda: lease.fs.mkdir(parts("c/new.x"), 0o700), "c/new.x", LOCKED)
    only = lend(Rules(("*.x",), (), (), writable=("a",)))
    refused(only, lambda: only.fs.mkdir(parts("c/new.x"), 0o700), "c/new.x", READ_ONLY)
    only.fs.mkdir(parts("a/new.x"), 0o700)


def test_a_name_that_is_there_as_a_directory_only_is_made_as_nothing_else(root: Path, lend: Lend) -> None:
    lease = lend(Rules((), (), (), include=("d/e/f",)))
    assert code_of(lambda: lease.put("d")) == errno.EACCES
    assert code_of(lambda: lease.fs.symlink(b"x", parts("d"))) == errno.EACCES
    assert not (root / "d").exists()
    lease.fs.mkdir(parts("d"), 0o700)
    lease.fs.mkdir(parts("d/e"), 0o700)
    lease.put("d/e/f")


def test_names_lie_no_deeper_than_is_looked_at(root: Path, lend: Lend) -> None:
    lease = lend()
    below = os.open(root, os.O_RDONLY)
    names = [b"d"] * MAX_DEPTH
    for name in names:
        os.mkdir(name, dir_fd=below)
        above, below = below, os.open(name, os.O_RDONLY, dir_fd=below)
        os.close(above)
    os.close(below)
    lease.fs.symlink(b"x", (*names, b"file"))
    lease.denied.clear()
    for action, path in (
        (partial(lease.fs.mkdir, (*names, b"d"), 0o700), (*names, b"d")),
        (partial(lease.fs.symlink, b"x", (*names, b"d", b"file")), (*names, b"d", b"file")),
    ):
        assert code_of(action) == errno.ENAMETOOLONG
        assert lease.denied.pop() == (b"/".join(path).decode(), DEEP)


def test_what_the_audit_could_not_look_at_is_told(root: Path, lend: Lend) -> None:
    lease = lend()
    refused(lease, lambda: lease.fs.set_attributes(parts("a/b/file"), mode=0o200), "a/b/file", SHUT)
    refused(lease, lambda: lease.fs.set_attributes(parts("a/b"), mode=0o600), "a/b", SHUT)


def test_what_the_lender_holds_is_no_place_for_the_leases(
    repository: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / ".ssh").mkdir()
    (repository / "c/x.pem").write_bytes(b"1")
    (repository / "a/d").symlink_to("nowhere")
    (repository / ".git/objects/tmp_d").mkdir()
    lease = lend()

    def mkdir(path: str) -> None:
        lease.fs.mkdir(parts(path), 0o700)

    refused(lease, lambda: mkdir(".ssh/new"), ".ssh/new", HIDDEN)
    refused(lease, lambda: mkdir("c/x.pem"), "c/x.pem", HIDDEN)
    mkdir(".aws")
    mkdir(".aws/inner")
    mkdir(".aws/inner/deeper")
    mkdir(".aws/inner/deeper/most")
    (repository / "a/b/y.pem").write_bytes(b"1")
    refused(lease, lambda: mkdir("a/b/y.pem"), "a/b/y.pem", HIDDEN)
    (repository / ".aws/theirs").mkdir()
    refused(lease, lambda: mkdir(".aws/theirs"), ".aws/theirs", HIDDEN)
    refused(lease, lambda: mkdir(".aws/theirs/new"), ".aws/theirs/new", HIDDEN)
    assert code_of(lambda: mkdir(".aws/inner")) == errno.EEXIST
    assert lease.own_paths() == [".aws", ".aws/inner", ".aws/inner/deeper", ".aws/inner/deeper/most"]
    mkdir(".git/objects/tmp_e")
    refused(lease, lambda: lease.fs.mkdir(parts(".git/objects/tmp_d/x"), 0o700), ".git/objects/tmp_d", DRAFT)
    mkdir(".git/objects/tmp_e/x")
    monkeypatch.setattr(OwnNames, "has_room", lambda self, path: False)
    refused(lease, lambda: mkdir("c/new.pem"), "c/new.pem", FULL)
    refused(lease, lambda: mkdir(".git/objects/tmp_f"), ".git/objects/tmp_f", FULL)
    mkdir("c/new")


def test_a_private_view_holds_no_drafts_of_the_lenders(repository: Path, lend: Lend) -> None:
    (repository / ".git/refs/heads/x.lock").write_bytes(b"1")
    (repository / ".git/objects/tmp_d").mkdir()
    lease = lend()
    refused(lease, touch(lease, ".git/refs/heads/x.lock"), ".git/refs/heads/x.lock", DRAFT)
    lease.put(".git/refs/heads/own.lock")
    touch(lease, ".git/refs/heads/own.lock")()
    private = lend(private=True)
    touch(private, ".git/refs/heads/x.lock")()
    private.fs.remove(parts(".git/refs/heads/x.lock"))
    private.put(".git/objects/tmp_d/y")
    private.put("c/x.pem")
    assert private.own_paths() == ["c/x.pem"]
    assert [identity.device for identity in (private.own.at(parts("c/x.pem")),) if identity] == [0]


def test_what_only_adds_removes_its_own_alone(root: Path, lend: Lend) -> None:
    lease = lend(ONLY_ADDS)
    refused(lease, lambda: lease.fs.remove(parts("a/b/file")), "a/b/file", NOT_MADE)
    (root / "c/empty").mkdir()
    refused(lease, lambda: lease.fs.rmdir(parts("c/empty")), "c/empty", NOT_MADE)
    lease.put("a/b/mine")
    lease.fs.symlink(b"mine", parts("a/b/link"))
    lease.fs.mkdir(parts("a/b/dir"), 0o700)
    assert len(lease.own._born) == 3
    lease.link("a/b/mine", "a/b/again")
    lease.fs.remove(parts("a/b/again"))
    assert len(lease.own._born) == 3, "it has another name"
    lease.fs.remove(parts("a/b/mine"))
    lease.fs.remove(parts("a/b/link"))
    lease.fs.mkdir(parts("a/b/dir/inner"), 0o700)
    lease.fs.rmdir(parts("a/b/dir/inner"))
    lease.fs.rmdir(parts("a/b/dir"))
    assert lease.own._born == set()
    other = lend()
    other.put("a/b/mine")
    assert other.own._born == set()


def test_a_name_that_is_there_fails_for_that_and_not_for_the_quota(root: Path, lend: Lend) -> None:
    lease = lend()
    lease.quota.max_files = 0
    assert code_of(lambda: lease.fs.mkdir(parts("a/b/file"), 0o700)) == errno.EEXIST
    assert code_of(lambda: lease.fs.mkdir(parts("a/b/new"), 0o700)) == errno.EDQUOT
    lease.quota.max_files = 1
    assert code_of(lambda: lease.fs.mkdir(parts("a/b/file"), 0o700)) == errno.EEXIST
    assert lease.used == (0, 0)

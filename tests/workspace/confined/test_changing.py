"""What comes before a change: what is refused and told, copies, and what is kept of what was there."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from sublet.workspace.confined import copy_up, shared
from sublet.workspace.confined.bounds import MAX_DEPTH
from sublet.workspace.confined.changing import (
    DEEP,
    DRAFT,
    FULL,
    HIDDEN,
    LEFT_OUT,
    LOCKED,
    MAX_COPIES,
    MOUNTED,
    NOT_KEPT,
    NOT_MADE,
    READ_ONLY,
    SHARED,
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
    Keeping,
    Lease,
    code_of,
    descriptors,
    learned,
    parts,
    person_edits,
    refused,
)


def lend(root: Path) -> WritableFs:
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
    fs = lend(root)
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
    fs = lend(root)
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
    fs = lend(tmp_path)
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


Lend = Callable[..., Lease]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "lent"
    for name in ("a/b", "c", ".git/refs/heads", ".git/objects/tmp_d"):
        (found / name).mkdir(parents=True)
    (found / "a/b/file").write_bytes(b"content")
    (found / "c/other").write_bytes(b"of another length")
    return found


@pytest.fixture
def lease_of(root: Path) -> Iterator[Lend]:
    made: list[Lease] = []

    def lend_it(rules: Rules | None = None, **more: object) -> Lease:
        made.append(Lease(root, rules, **more))  # type: ignore[arg-type]
        return made[-1]

    yield lend_it
    for one in made:
        one.fs.close()


def touch(lease: Lease, path: str) -> Callable[[], None]:
    return partial(lease.fs.set_modified, parts(path), 5)


def test_what_is_refused_is_told_with_the_reason(root: Path, lease_of: Lend, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("left", "read"):
        (root / name).mkdir()
        (root / name / "f").write_bytes(b"1")
    (root / ".envrc").write_bytes(b"1")
    (root / "read/AGENTS.md").write_bytes(b"1")
    rules = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, (), exclude=("left",), writable=("a", "c", ".envrc"))
    lease = lease_of(rules)
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


def test_what_is_left_out_is_not_said_to_be_locked(root: Path, lease_of: Lend) -> None:
    (root / "c/AGENTS.md").write_bytes(b"1")
    lease = lease_of(Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, (), exclude=("AGENTS.md",)))
    refused(lease, touch(lease, "c/AGENTS.md"), "c/AGENTS.md", LEFT_OUT)


def test_a_hidden_name_that_is_locked_as_well_is_said_to_be_locked(root: Path, lease_of: Lend) -> None:
    lease = lease_of(Rules(("*.x",), ("*.x",), ()))
    refused(lease, touch(lease, "c/new.x"), "c/new.x", LOCKED)
    refused(lease, lambda: lease.fs.mkdir(parts("c/new.x"), 0o700), "c/new.x", LOCKED)
    only = lease_of(Rules(("*.x",), (), (), writable=("a",)))
    refused(only, lambda: only.fs.mkdir(parts("c/new.x"), 0o700), "c/new.x", READ_ONLY)
    only.fs.mkdir(parts("a/new.x"), 0o700)


def test_a_name_that_is_there_as_a_directory_only_is_made_as_nothing_else(root: Path, lease_of: Lend) -> None:
    lease = lease_of(Rules((), (), (), include=("d/e/f",)))
    assert code_of(lambda: lease.put("d")) == errno.EACCES
    assert code_of(lambda: lease.fs.symlink(b"x", parts("d"))) == errno.EACCES
    assert not (root / "d").exists()
    lease.fs.mkdir(parts("d"), 0o700)
    lease.fs.mkdir(parts("d/e"), 0o700)
    lease.put("d/e/f")


def test_names_lie_no_deeper_than_is_looked_at(root: Path, lease_of: Lend) -> None:
    lease = lease_of()
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


def test_what_the_audit_could_not_look_at_is_told(root: Path, lease_of: Lend) -> None:
    lease = lease_of()
    refused(lease, lambda: lease.fs.set_attributes(parts("a/b/file"), mode=0o200), "a/b/file", SHUT)
    refused(lease, lambda: lease.fs.set_attributes(parts("a/b"), mode=0o600), "a/b", SHUT)


def test_what_the_lender_holds_is_no_place_for_the_leases(
    root: Path, lease_of: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / ".ssh").mkdir()
    (root / "c/x.pem").write_bytes(b"1")
    (root / "a/d").symlink_to("nowhere")
    lease = lease_of()

    def mkdir(path: str) -> None:
        lease.fs.mkdir(parts(path), 0o700)

    refused(lease, lambda: mkdir(".ssh/new"), ".ssh/new", HIDDEN)
    refused(lease, lambda: mkdir("c/x.pem"), "c/x.pem", HIDDEN)
    mkdir(".aws")
    mkdir(".aws/inner")
    mkdir(".aws/inner/deeper")
    (root / ".aws/theirs").mkdir()
    refused(lease, lambda: mkdir(".aws/theirs"), ".aws/theirs", HIDDEN)
    refused(lease, lambda: mkdir(".aws/theirs/new"), ".aws/theirs/new", HIDDEN)
    assert code_of(lambda: mkdir(".aws/inner")) == errno.EEXIST
    assert lease.own_paths() == [".aws", ".aws/inner", ".aws/inner/deeper"]
    mkdir(".git/objects/tmp_e")
    refused(lease, lambda: lease.fs.mkdir(parts(".git/objects/tmp_d/x"), 0o700), ".git/objects/tmp_d", DRAFT)
    mkdir(".git/objects/tmp_e/x")
    monkeypatch.setattr(OwnNames, "has_room", lambda self, path: False)
    refused(lease, lambda: mkdir("c/new.pem"), "c/new.pem", FULL)
    refused(lease, lambda: mkdir(".git/objects/tmp_f"), ".git/objects/tmp_f", FULL)
    mkdir("c/new")


def test_a_private_view_holds_no_drafts_of_the_lenders(root: Path, lease_of: Lend) -> None:
    (root / ".git/refs/heads/x.lock").write_bytes(b"1")
    lease = lease_of()
    refused(lease, touch(lease, ".git/refs/heads/x.lock"), ".git/refs/heads/x.lock", DRAFT)
    lease.put(".git/refs/heads/own.lock")
    touch(lease, ".git/refs/heads/own.lock")()
    private = lease_of(private=True)
    touch(private, ".git/refs/heads/x.lock")()
    private.fs.remove(parts(".git/refs/heads/x.lock"))
    private.put(".git/objects/tmp_d/y")
    private.put("c/x.pem")
    assert private.own_paths() == ["c/x.pem"]
    assert [identity.device for identity in (private.own.at(parts("c/x.pem")),) if identity] == [0]


def test_what_only_adds_removes_its_own_alone(root: Path, lease_of: Lend) -> None:
    lease = lease_of(ONLY_ADDS)
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
    other = lease_of()
    other.put("a/b/mine")
    assert other.own._born == set()


def test_a_name_that_is_there_fails_for_that_and_not_for_the_quota(root: Path, lease_of: Lend) -> None:
    lease = lease_of()
    lease.quota.max_files = 0
    assert code_of(lambda: lease.fs.mkdir(parts("a/b/file"), 0o700)) == errno.EEXIST
    assert code_of(lambda: lease.fs.mkdir(parts("a/b/new"), 0o700)) == errno.EDQUOT
    lease.quota.max_files = 1
    assert code_of(lambda: lease.fs.mkdir(parts("a/b/file"), 0o700)) == errno.EEXIST
    assert lease.used == (0, 0)


# Files with names elsewhere


@pytest.fixture
def outside(root: Path, tmp_path: Path) -> Path:
    """A file outside that has a name in the lent directory."""
    found = tmp_path / "outside"
    found.write_bytes(b"outside")
    found.chmod(0o640)
    (root / "c/linked").hardlink_to(found)
    return found


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MAX_PAUSE_SECONDS", 0.0)


def test_a_copy_is_charged_told_and_followed_by_open_handles(root: Path, outside: Path, lease_of: Lend) -> None:
    lease = lease_of()
    handles = [lease.fs.open_write(parts("c/linked"), os.O_RDWR, 0) for _ in range(2)]
    other = lease.fs.open_write(parts("c/other"), os.O_RDWR, 0)
    handles[0].write(b"theirs", 0)
    assert lease.told == ["c/linked", "c/linked"]
    assert lease.used == (7, 0)
    assert outside.read_bytes() == b"outside"
    assert handles[1].read(9, 0) == b"theirse"
    assert other.read(2, 0) == b"of"
    for file in (*handles, other):
        file.close()
    assert lease.used == (7, 0)


def test_a_handle_of_the_same_name_that_is_open_on_another_file_stays_there(
    root: Path, outside: Path, lease_of: Lend
) -> None:
    lease = lease_of()
    before = lease.fs.open_write(parts("c/linked"), os.O_RDWR, 0)
    (root / "c/linked").unlink()
    (root / "c/linked").write_bytes(b"in between")
    (root / "c/linked").unlink()
    second = root.parent / "second"
    second.write_bytes(b"second")
    (root / "c/linked").hardlink_to(second)
    now = lease.fs.open_write(parts("c/linked"), os.O_RDWR, 0)
    now.write(b"theirs", 0)
    assert (second.read_bytes(), (root / "c/linked").read_bytes()) == (b"second", b"theirs")
    assert before.read(9, 0) == b"outside"
    for file in (before, now):
        file.close()


@pytest.mark.parametrize(("size", "charged"), [(0, 0), (3, 3), (9, 9)])
def test_no_more_is_copied_than_is_needed(root: Path, outside: Path, lease_of: Lend, size: int, charged: int) -> None:
    lease = lease_of()
    lease.fs.set_attributes(parts("c/linked"), size=size)
    assert (root / "c/linked").read_bytes() == b"outside"[:size].ljust(size, b"\0")
    assert lease.used == (charged, 0)


def test_a_copy_that_can_not_be_made_is_not_charged(
    root: Path, outside: Path, lease_of: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lease_of()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(copy_up, "copy_content", full)
    fds = descriptors()
    assert code_of(lambda: write(lease.fs, b"c/linked", b"theirs")) == errno.ENOSPC
    assert (lease.used, lease.told, descriptors()) == ((0, 0), [], fds)
    lease.quota.max_bytes = 6
    assert code_of(lambda: write(lease.fs, b"c/linked", b"theirs")) == errno.EDQUOT
    assert lease.used == (0, 0)


def test_a_name_that_leads_elsewhere_meanwhile_is_not_copied(root: Path, outside: Path, lease_of: Lend) -> None:
    lease = lease_of()
    file = lease.fs.open_write(parts("c/linked"), os.O_RDWR, 0)
    (root / "c/linked").unlink()
    (root / "c/linked").write_bytes(b"another")
    second = root.parent / "second"
    second.hardlink_to(outside)
    fds = descriptors()
    assert code_of(lambda: file.write(b"theirs", 0)) == errno.ESTALE
    assert outside.read_bytes() == b"outside"
    assert (lease.used, lease.told, descriptors()) == ((0, 0), [], fds)
    file.close()


def test_a_file_that_has_come_to_be_a_hidden_ones_is_not_changed(root: Path, lease_of: Lend) -> None:
    lease = lease_of()
    file = lease.fs.open_write(parts("c/other"), os.O_RDWR, 0)
    (root / "a/b/x.pem").hardlink_to(root / "c/other")
    refused(lease, lambda: file.write(b"theirs", 0), "c/other", SHARED)
    refused(lease, lambda: file.truncate(0), "c/other", SHARED)
    refused(lease, lambda: file.set_mode(0o600), "c/other", SHARED)
    file.close()


def test_what_has_no_name_any_more_is_changed_for_whoever_has_it_open(root: Path, lease_of: Lend) -> None:
    lease = lease_of(keeper=None)
    file = lease.fs.open_write(parts("c/other"), os.O_RDWR, 0)
    lease.fs.remove(parts("c/other"))
    file.write(b"12", 0)
    assert file.read(2, 0) == b"12"
    file.close()


def test_a_private_view_changes_every_file_in_place(root: Path, outside: Path, lease_of: Lend) -> None:
    lease = lease_of(private=True)
    write(lease.fs, b"c/linked", b"theirs")
    assert outside.read_bytes() == b"theirse"


def test_a_link_with_a_name_elsewhere_gets_one_of_its_own(root: Path, tmp_path: Path, lease_of: Lend) -> None:
    (root / "c/link").symlink_to("other")
    os.link(root / "c/link", tmp_path / "link", follow_symlinks=False)
    before = (tmp_path / "link").lstat().st_mtime_ns
    lease = lease_of()
    lease.fs.set_modified(parts("c/link"), 5)
    assert (root / "c/link").lstat().st_mtime_ns == 5
    assert (tmp_path / "link").lstat().st_mtime_ns == before
    assert lease.used == (0, 0)
    assert os.readlink(root / "c/link") == "other"


def test_few_copies_wait_and_all_are_let_go(root: Path, tmp_path: Path, lease_of: Lend) -> None:
    names = [f"big{number}" for number in range(MAX_COPIES + 2)]
    for name in names:
        (tmp_path / name).write_bytes(b"o" * (QUICK_BYTES + 1))
        (root / "c" / name).hardlink_to(tmp_path / name)
    lease = lease_of(patient=False)
    fds = descriptors()
    for name in names:
        copy_only(lease, f"c/{name}")
        assert len(lease.fs._copies) <= MAX_COPIES
    assert [key[2].decode() for key in lease.fs._copies] == names[-MAX_COPIES:]
    assert lease.used == (0, 0)
    write_once(lease, f"c/{names[-1]}")
    assert len(lease.fs._copies) == MAX_COPIES - 1
    assert lease.used == (QUICK_BYTES + 1, 0)
    lease.fs.close()
    assert lease.fs._copies == {}
    assert descriptors() == fds - 1


def asked_to_copy(lease: Lease, path: str) -> NotKnownYet:
    """Find out all that has to be known before a file is copied, and return what copies it."""
    for _ in range(9):
        try:
            write_once(lease, path)
        except NotKnownYet as unknown:
            if unknown.learn.__qualname__.startswith("ChangingFs"):
                return unknown
            unknown.learn()
    raise AssertionError("it is never copied")


def copy_only(lease: Lease, path: str) -> None:
    asked_to_copy(lease, path).learn()


@pytest.mark.parametrize("learns", [True, False])
def test_a_copy_that_is_made_when_all_is_over_is_let_go(
    root: Path, tmp_path: Path, lease_of: Lend, learns: bool
) -> None:
    (tmp_path / "big").write_bytes(b"o" * (QUICK_BYTES + 1))
    (root / "c/big").hardlink_to(tmp_path / "big")
    fds = descriptors()
    lease = lease_of(patient=False)
    unknown = asked_to_copy(lease, "c/big")
    lease.fs.close()
    if learns:
        unknown.learn()
    else:
        unknown.drop()
    assert lease.fs._copies == {}
    assert descriptors() == fds


def test_small_files_and_patient_ones_are_copied_at_once(
    root: Path, tmp_path: Path, lease_of: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "CLOCK_NS", 0)
    for name, size in (("small", QUICK_BYTES), ("big", QUICK_BYTES + 1)):
        (tmp_path / name).write_bytes(b"o" * size)
        (root / "c" / name).hardlink_to(tmp_path / name)
    lease = lease_of(patient=False)
    assert learned(lambda: write_once(lease, "c/small")) == 1
    assert learned(lambda: write_once(lease, "c/big")) == 1
    patient = lease_of()
    (tmp_path / "more").write_bytes(b"o" * (QUICK_BYTES + 1))
    (root / "c/more").hardlink_to(tmp_path / "more")
    assert learned(lambda: write_once(patient, "c/more")) == 0


def write_once(lease: Lease, path: str) -> None:
    file = lease.fs.open_write(parts(path), os.O_WRONLY, 0)
    try:
        file.write(b"theirs", 0)
    finally:
        file.close()


# What is kept of what was there


def test_what_was_there_is_kept_whatever_it_is_opened_for(root: Path, tmp_path: Path, lease_of: Lend) -> None:
    (root / "c/link").symlink_to("other")
    lease = lease_of(keeper=Keeping(tmp_path / "kept", root))
    write_once(lease, "a/b/file")
    lease.fs.remove(parts("c/link"))
    lease.fs.set_attributes(parts("c/other"), times=(1, 1))
    assert lease.kept() == [("a/b/file", "first", False), ("c/link", "first", False), ("c/other", "first", False)]


def test_what_the_lease_left_is_not_kept_again(root: Path, tmp_path: Path, lease_of: Lend) -> None:
    lease = lease_of(keeper=Keeping(tmp_path / "kept", root))
    lease.put("new", b"1")
    lease.fs.symlink(b"new", parts("link"))
    lease.fs.mkdir(parts("dir"), 0o700)
    lease.fs.set_attributes(parts("new"), mode=0o600)
    lease.fs.set_modified(parts("link"), 5)
    lease.fs.set_attributes(parts("dir"), mode=0o755)
    write_once(lease, "new")
    lease.fs.remove(parts("new"))
    lease.fs.remove(parts("link"))
    lease.fs.rmdir(parts("dir"))
    assert (lease.kept(), lease.kept_directories()) == ([], [])
    lease.fs.set_attributes(parts("a/b"), mode=0o711)
    lease.fs.set_attributes(parts("a/b"), mode=0o755)
    (root / "c/other").unlink()
    lease.fs.rmdir(parts("c"))
    assert [(path, by) for path, by, _ in lease.kept_directories()] == [("a/b", "first"), ("c", "first")]


def test_another_s_edit_is_kept_at_each_turn(root: Path, tmp_path: Path, lease_of: Lend) -> None:
    lease = lease_of(keeper=Keeping(tmp_path / "kept", root))
    file = lease.fs.open_write(parts("a/b/file"), os.O_WRONLY, 0)
    file.write(b"1", 0)
    person_edits(root, "a/b/file", b"of a person")
    file.write(b"2", 0)
    file.close()
    person_edits(root, "a/b/file", b"once more, longer")
    write_once(lease, "a/b/file")
    assert [by for _, by, _ in lease.kept()] == ["first", "other", "other"]


def test_what_can_not_be_kept_is_not_changed_where_all_must_be(root: Path, tmp_path: Path, lease_of: Lend) -> None:
    lease = lease_of(keeper=Keeping(tmp_path / "kept", root, limit=0))
    for action in (
        lambda: write_once(lease, "a/b/file"),
        lambda: lease.fs.remove(parts("a/b/file")),
        touch(lease, "a/b/file"),
    ):
        refused(lease, action, "a/b/file", NOT_KEPT, errno.EDQUOT)


def test_a_copy_holds_what_the_lease_left_in_the_one_before(
    root: Path, outside: Path, tmp_path: Path, lease_of: Lend
) -> None:
    lease = lease_of(keeper=Keeping(tmp_path / "kept", root))
    write_once(lease, "c/linked")
    write_once(lease, "c/linked")
    assert lease.kept() == [("c/linked", "first", False)]
    (root / "c/link").symlink_to("other")
    os.link(root / "c/link", tmp_path / "link", follow_symlinks=False)
    lease.fs.set_modified(parts("c/link"), 5)
    kept = lease.kept()
    lease.fs.set_modified(parts("c/link"), 6)
    assert lease.kept() == kept


def test_the_keeper_is_told_when_a_handle_is_done(root: Path, tmp_path: Path, lease_of: Lend) -> None:
    lease = lease_of(keeper=Keeping(tmp_path / "kept", root))
    assert lease.keeper is not None
    file = lease.fs.open_write(parts("a/b/file"), os.O_WRONLY, 0)
    unchanged = lease.fs.open_write(parts("c/other"), os.O_WRONLY, 0)
    file.write(b"1", 0)
    inode = file.stat().st_ino
    assert lease.keeper.keeper._writing == {inode}
    assert lease.fs._open_files == {file, unchanged}
    unchanged.close()
    assert lease.keeper.keeper._writing == {inode}
    file.close()
    assert lease.keeper.keeper._writing == set()
    assert lease.fs._open_files == set()
    lease.fs.close()
    assert lease.keeper.keeper._log == -1

"""Renames: what they leave, what they refuse, and what is known of a file afterwards."""

from __future__ import annotations

import errno
import hashlib
import os
import time
from functools import partial
from pathlib import Path

import pytest

from sublet.disk.openat2 import rename_noreplace, walk_beneath
from sublet.workspace.confined import moving, shared
from sublet.workspace.confined.changing import (
    HIDDEN,
    HIDES,
    HOLDS,
    LEADS_OUT,
    NOT_KEPT,
    NOT_MADE,
    SHARED,
    UNCHECKED,
)
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.kept.keeper import OverwriteKeeper
from support.sftp_client import PathRules
from workspace.confined.leases import (
    ONE,
    ONLY_ADDS,
    TWO,
    Keeping,
    Lend,
    code_of,
    descriptors,
    learned,
    parts,
    person_edits,
    picture,
    refused,
    write,
)

CONTENT = b"blob 5\0hello"
OBJECT = hashlib.sha1(CONTENT, usedforsecurity=False).hexdigest()


# Renames


@pytest.mark.parametrize("replace", [True, False])
def test_a_file_gets_another_name_and_nothing_else_changes(root: Path, lend: Lend, replace: bool) -> None:
    lease = lend()
    fds, inode = descriptors(), (root / "a/b/file").stat().st_ino
    lease.rename("a/b/file", "c/moved", replace=replace)
    assert picture(root).keys() == {"a", "a/b", "c", "c/moved", "c/other"}
    assert (root / "c/moved").stat().st_ino == inode
    assert lease.told == ["a/b/file", "c/moved"]
    assert lease.used == (0, 0)
    assert lease.fs.names_changed == 1
    lease.rename("a/b", "c/b", replace=replace)
    lease.rename("c/moved", "c/b/again", replace=replace)
    assert picture(root).keys() == {"a", "c", "c/b", "c/b/again", "c/other"}
    assert lease.fs.names_changed == 3
    assert descriptors() == fds


def test_what_is_replaced_gives_its_room_back_unless_it_has_another_name(root: Path, lend: Lend) -> None:
    lease = lend()
    size = (root / "c/other").stat().st_size
    lease.rename("a/b/file", "c/other")
    assert (root / "c/other").read_bytes() == b"content"
    assert lease.used == (-size, -1)
    (root / "a/b/twice").write_bytes(b"12")
    (root / "a/b/again").hardlink_to(root / "a/b/twice")
    lease.rename("c/other", "a/b/twice")
    assert lease.used == (-size, -2)
    lease.put("new", b"1")
    lease.link("new", "newer")
    before = picture(root)
    lease.rename("new", "newer")
    assert picture(root) == before
    assert lease.used == (-size + 1, 0)


def test_links_are_replaced_and_replace_as_what_they_are(root: Path, lend: Lend) -> None:
    (root / "c/link").symlink_to("other")
    (root / "c/second").symlink_to("other")
    (root / "a/b/dangling").symlink_to("nowhere")
    lease = lend()
    lease.rename("a/b/file", "c/link")
    assert lease.used == (0, -1)
    lease.rename("c/link", "a/b/dangling")
    assert lease.used == (0, -2)
    size = (root / "c/other").stat().st_size
    lease.rename("c/second", "c/other")
    assert lease.used == (-size, -3)
    assert os.readlink(root / "c/other") == "other"


def test_directories_are_opened_as_the_lease_says(root: Path, lend: Lend) -> None:
    opened: list[bytes] = []

    def opener(directory: int, path: bytes, flags: int) -> int:
        opened.append(path)
        return walk_beneath(directory, path, flags)

    lease = lend(opener=opener)
    lease.rename("a/b/file", "c/moved")
    assert opened == [b"a/b", b"c"]


def test_a_directory_that_is_moved_to_and_fro_is_listed_once(
    root: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 2 * shared.CLOCK_NS)
    lease = lend()
    listed: list[int] = []
    real = os.scandir

    def scandir(fd: int) -> object:
        listed.append(fd)
        return real(fd)

    monkeypatch.setattr(os, "scandir", scandir)
    lease.rename("a", "d")
    assert len(listed) == 2
    lease.rename("d", "c/e")
    lease.rename("c/e", "a")
    assert len(listed) == 2


def test_a_name_that_is_there_stays_where_it_must_not_be_replaced(root: Path, lend: Lend) -> None:
    lease = lend()
    before = picture(root)
    assert code_of(lambda: lease.rename("a/b/file", "c/other", replace=False)) == errno.EEXIST
    assert code_of(lambda: lease.rename("a/b", "c", replace=False)) == errno.EEXIST
    assert code_of(lambda: lease.rename("a/b/none", "c/other")) == errno.ENOENT
    assert (picture(root), lease.used, lease.told, lease.denied) == (before, (0, 0), [], [])


def test_open_handles_follow_a_rename_of_the_file_and_of_what_it_lies_in(root: Path, lend: Lend) -> None:
    (root / "a/b/more").write_bytes(b"1")
    (root / "a/bb").mkdir()
    (root / "a/bb/file").write_bytes(b"1")
    lease = lend()
    names = ("a/b/file", "a/b/more", "a/bb/file", "c/other")
    files = [lease.fs.open_write(parts(name), os.O_RDWR, 0) for name in names]

    def called() -> list[str]:
        return [b"/".join(file.parts).decode() for file in files]

    lease.rename("a/b/file", "c/moved")
    assert called() == ["c/moved", "a/b/more", "a/bb/file", "c/other"]
    lease.rename("a/b", "c/d")
    assert called() == ["c/moved", "c/d/more", "a/bb/file", "c/other"]
    lease.rename("c", "e")
    assert called() == ["e/moved", "e/d/more", "a/bb/file", "e/other"]
    lease.rename("e/moved", "e/d/moved")
    assert called() == ["e/d/moved", "e/d/more", "a/bb/file", "e/other"]
    lease.rename("e/d/moved", "e/moved", replace=False)
    lease.told.clear()
    for file in files:
        file.write(b"theirs", 0)
        file.close()
    assert lease.told == ["e/moved", "e/d/more", "a/bb/file", "e/other"]


def test_handles_stay_where_somebody_else_has_taken_the_file_away(
    root: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend()
    file = lease.fs.open_write(parts("a/b/file"), os.O_RDWR, 0)
    real = rename_noreplace

    def elsewhere(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]
        (root / "c/moved").rename(root / "taken")

    def exchanged(*arguments: object) -> None:
        elsewhere(*arguments)
        (root / "c/moved").write_bytes(b"of the lender")

    for action in (elsewhere, exchanged):
        monkeypatch.setattr(moving, "rename_noreplace", action)
        lease.rename("a/b/file", "c/moved", replace=False)
        assert b"/".join(file.parts) == b"a/b/file"
        (root / "c/moved").unlink(missing_ok=True)
        (root / "taken").rename(root / "a/b/file")
    file.close()


@pytest.mark.parametrize(("old", "new", "path"), [("a", "d", "a"), ("c", "a", "a"), ("a/b", "d", None)])
def test_a_directory_above_rules_is_neither_moved_nor_made(
    root: Path, lend: Lend, old: str, new: str, path: str | None
) -> None:
    lease = lend(PathRules(hidden=(b"a/secret",)))
    if path is None:
        lease.rename(old, new)
    else:
        refused(lease, lambda: lease.rename(old, new), path, HOLDS)


def test_a_directory_above_a_mount_is_neither_moved_nor_made(
    root: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend()
    monkeypatch.setattr(lease.fs._mounts, "lie_below", lambda path: tuple(path) == (b"a", b"b"), raising=False)
    refused(lease, lambda: lease.rename("a/b", "d"), "a/b", HOLDS)
    refused(lease, lambda: lease.rename("c", "a/b"), "a/b", HOLDS)


def test_a_link_gets_no_hidden_name_and_none_from_where_it_leads_out(root: Path, lend: Lend) -> None:
    (root / "a/b/link").symlink_to("../../c/other")
    lease = lend()
    refused(lease, lambda: lease.rename("a/b/link", "c/x.pem"), "c/x.pem", HIDES)
    refused(lease, lambda: lease.rename("a/b/link", "link"), "link", LEADS_OUT)
    lease.rename("a/b/link", "a/b/other")
    assert os.readlink(root / "a/b/other") == "../../c/other"
    lease.rename("a/b/file", "c/x.pem")
    assert lease.own_paths() == ["c/x.pem"]


def test_a_directory_goes_neither_to_a_hidden_name_nor_out_of_packages_nor_among_drafts(
    repository: Path, lend: Lend
) -> None:
    (repository / "node_modules/p").mkdir(parents=True)
    lease = lend()
    before = picture(repository)
    for old, new in (("a/b", "c/x.pem"), ("node_modules/p", "a/p")):
        assert code_of(partial(lease.rename, old, new)) == errno.EXDEV
    assert (picture(repository), lease.denied, lease.told) == (before, [], [])
    lease.rename("node_modules/p", "node_modules/q")
    lease.rename("a/b", "node_modules/b")


def test_a_directory_becomes_no_draft_where_others_see_it(repository: Path, lend: Lend) -> None:
    (repository / ".git/refs/heads/d").mkdir()
    lease = lend()
    new = ".git/refs/heads/e.lock"
    refused(lease, lambda: lease.rename(".git/refs/heads/d", new), new, UNCHECKED)
    private = lend(private=True)
    private.rename(".git/refs/heads/d", new)
    assert (repository / new).is_dir()


def test_what_holds_names_of_the_lenders_stays(root: Path, lend: Lend) -> None:
    (root / "a/b/.env").write_bytes(b"KEY=1")
    lease = lend()
    refused(lease, lambda: lease.rename("a/b", "d"), "a/b", HOLDS)
    refused(lease, lambda: lease.rename("a", "c/a"), "a", HOLDS)
    impatient = lend(patient=False)
    refused(impatient, lambda: impatient.rename("a", "c/a"), "a", HOLDS)
    (root / "c/shown").hardlink_to(root / "a/b/.env")
    refused(lease, lambda: lease.rename("c", "d"), "c", HOLDS)


def test_a_directory_whose_links_would_leave_is_copied_by_the_client(root: Path, lend: Lend) -> None:
    (root / "a/b/up").symlink_to("../../c")
    lease = lend()
    assert code_of(lambda: lease.rename("a/b", "b")) == errno.EXDEV
    assert lease.denied == []
    lease.rename("a/b", "c/b")


def test_a_large_directory_is_looked_through_in_a_thread(
    root: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublet.workspace.confined.held.QUICK_ENTRIES", 0)
    lease = lend(patient=False)
    with pytest.raises(NotKnownYet) as asked:
        lease.rename("a/b", "d")
    asked.value.learn()
    lease.rename("a/b", "d")
    assert (root / "d/file").exists()
    patient = lend()
    patient.rename("d", "a/b")


def test_what_was_found_of_a_directory_is_old_once_the_lease_changes_it(
    root: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublet.workspace.confined.held.QUICK_ENTRIES", 0)
    lease = lend(patient=False)
    for _ in range(2):
        with pytest.raises(NotKnownYet) as asked:
            lease.rename("a/b", "d")
        asked.value.learn()
        lease.put("a/b/new")
    with pytest.raises(NotKnownYet) as asked:
        lease.rename("a/b", "d")
    asked.value.drop()


def test_objects_get_no_directory_that_nobody_has_looked_at(repository: Path, lend: Lend) -> None:
    lease = lend()
    lease.fs.mkdir(parts(".git/objects/tmp_d"), 0o755)
    before, used = picture(repository), lease.used
    lease.told.clear()
    assert code_of(lambda: lease.rename(".git/objects/tmp_d", ".git/objects/bb")) == errno.EACCES
    assert (picture(repository), lease.used, lease.told, lease.denied) == (before, used, [], [])


def test_a_file_whose_further_name_is_hidden_is_not_replaced(root: Path, lend: Lend) -> None:
    (root / "c/x.pem").hardlink_to(root / "a/b/file")
    (root / "a/b/link").symlink_to("nowhere")
    os.link(root / "a/b/link", root / "c/y.pem", follow_symlinks=False)
    lease = lend()
    for name in ("a/b/file", "a/b/link"):
        for replace in (True, False):
            refused(lease, partial(lease.rename, "c/other", name, replace=replace), name, SHARED)
        assert code_of(partial(lease.rename, name, "d")) == errno.ENOENT
        assert code_of(partial(lease.link, name, "d")) == errno.ENOENT


def test_nothing_is_made_where_the_lender_has_something_that_is_hidden(root: Path, lend: Lend) -> None:
    (root / "c/x.pem").write_bytes(b"of the lender")
    (root / ".ssh").mkdir()
    lease = lend()
    for replace in (True, False):
        refused(lease, partial(lease.rename, "a/b/file", "c/x.pem", replace=replace), "c/x.pem", HIDDEN)
        refused(lease, partial(lease.rename, "a/b/file", ".ssh/x", replace=replace), ".ssh/x", HIDDEN)


def test_a_hidden_name_that_the_lender_makes_in_this_moment_is_not_replaced(
    root: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend()
    real = rename_noreplace

    def planted(*arguments: object) -> None:
        (root / "c/x.pem").write_bytes(b"of the lender")
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(moving, "rename_noreplace", planted)
    assert code_of(lambda: lease.rename("a/b/file", "c/x.pem")) == errno.EEXIST
    assert (root / "c/x.pem").read_bytes() == b"of the lender"
    assert lease.own_paths() == []


def test_the_lease_replaces_its_own_under_a_hidden_name(root: Path, lend: Lend) -> None:
    lease = lend()
    lease.put("c/x.pem", b"1")
    lease.put("c/y.pem", b"22")
    lease.rename("c/y.pem", "c/x.pem")
    assert (root / "c/x.pem").read_bytes() == b"22"
    assert lease.own_paths() == ["c/x.pem"]
    assert lease.used == (2, 1)
    lease.rename("c/x.pem", "c/x.pem")
    assert lease.own_paths() == ["c/x.pem"]
    lease.rename("c/x.pem", "c/plain")
    assert lease.own_paths() == []
    lease.rename("c/plain", "a/b/z.pem")
    assert lease.own_paths() == ["a/b/z.pem"]
    lease.rename("a/b", "c/b")
    assert lease.own_paths() == ["c/b/z.pem"]
    lease.fs.remove(parts("c/b/z.pem"))


def test_a_draft_keeps_its_owner_wherever_it_goes(repository: Path, lend: Lend) -> None:
    lease = lend()
    lease.put(".git/refs/heads/x.lock", ONE)
    lease.rename(".git/refs/heads/x.lock", ".git/refs/heads/y.lock")
    assert lease.own_paths() == [".git/refs/heads/y.lock"]
    lease.rename("a/b/file", ".git/refs/heads/z.lock")
    assert lease.own_paths() == [".git/refs/heads/y.lock", ".git/refs/heads/z.lock"]
    lease.rename(".git/refs/heads/y.lock", "a/b/plain")
    assert lease.own_paths() == [".git/refs/heads/z.lock"]
    lease.put(".git/refs/heads/w.lock", ONE)
    lease.rename(".git/refs/heads/w.lock", ".git/refs/heads/z.lock")
    assert lease.own_paths() == [".git/refs/heads/z.lock"]
    private = lend(private=True)
    private.put(".git/refs/heads/p.lock", ONE)
    private.rename("c/other", ".git/refs/heads/q.lock")


# Who may replace only what it has made


def test_only_what_the_lease_made_is_moved_or_replaced(root: Path, lend: Lend) -> None:
    lease = lend(ONLY_ADDS)
    lease.put("a/b/mine", b"1")
    lease.put("c/mine", b"22")
    refused(lease, lambda: lease.rename("a/b/file", "d"), "a/b/file", NOT_MADE)
    refused(lease, lambda: lease.rename("c", "d"), "c", NOT_MADE)
    refused(lease, lambda: lease.rename("a/b/mine", "c/other"), "c/other", NOT_MADE)
    refused(lease, lambda: lease.rename("c/mine", "a/b/file"), "a/b/file", NOT_MADE)
    (root / "c/link").symlink_to("nowhere")
    refused(lease, lambda: lease.rename("a/b/mine", "c/link"), "c/link", NOT_MADE)
    lease.put("a/b/more", b"333")
    lease.rename("a/b/mine", "a/b/more")
    lease.rename("a/b/more", "a/b/mine")
    assert code_of(lambda: lease.rename("a/b/mine", "c/other", replace=False)) == errno.EEXIST
    lease.rename("a/b/mine", "c/mine")
    assert lease.used == (1, 1)
    lease.rename("c/mine", "a/b/mine")
    lease.fs.remove(parts("a/b/mine"))
    assert lease.used == (0, 0)


def test_what_the_lender_makes_in_this_moment_stays_where_the_lease_only_adds(
    root: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend(ONLY_ADDS)
    lease.put("a/b/mine", b"1")
    real = rename_noreplace

    def planted(*arguments: object) -> None:
        (root / "c/new").write_bytes(b"of the lender")
        real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(moving, "rename_noreplace", planted)
    assert code_of(lambda: lease.rename("a/b/mine", "c/new")) == errno.EEXIST
    assert (root / "c/new").read_bytes() == b"of the lender"


def test_what_was_replaced_is_dead(root: Path, lend: Lend) -> None:
    """What gets its inode later is another file, which the lease has not made."""
    lease = lend(ONLY_ADDS)
    for name in ("a/b/mine", "c/mine"):
        lease.put(name, b"1")
    born = set(lease.own._born)
    assert len(born) == 2
    lease.rename("a/b/mine", "c/mine")
    assert len(lease.own._born) == 1
    lease.link("c/mine", "c/again")
    before = set(lease.own._born)
    lease.put("new", b"1")
    lease.rename("new", "c/again")
    assert before < lease.own._born
    lease.rename("c/again", "c/again")
    assert len(lease.own._born) == 2


# Files with several names


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "MAX_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(shared, "CLOCK_NS", 0)


@pytest.mark.usefixtures("quickly")
def test_what_is_known_of_a_file_with_several_names_stays_known_over_renames(root: Path, lend: Lend) -> None:
    (root / "c/second").hardlink_to(root / "a/b/file")
    lease = lend(patient=False)
    assert learned(lambda: write(lease, "a/b/file")) == 1
    lease.rename("c/second", "c/moved")
    assert learned(lambda: write(lease, "c/moved")) == 0
    assert (root / "a/b/file").samefile(root / "c/moved")
    assert (root / "a/b/file").read_bytes() == b"theirst"


@pytest.mark.usefixtures("quickly")
def test_names_that_a_directory_took_along_are_looked_for_again(root: Path, lend: Lend) -> None:
    (root / "c/second").hardlink_to(root / "a/b/file")
    lease = lend(patient=False)
    assert learned(lambda: write(lease, "a/b/file")) == 1
    lease.rename("c", "d")
    assert learned(lambda: write(lease, "a/b/file")) == 1
    assert (root / "a/b/file").samefile(root / "d/second")


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("way", ["remove", "replace"])
def test_what_is_known_of_a_file_stays_known_when_it_loses_a_name(root: Path, lend: Lend, way: str) -> None:
    for name in ("c/second", "c/third"):
        (root / name).hardlink_to(root / "a/b/file")
    (root / "outside").write_bytes(b"1")
    lease = lend(patient=False)
    assert learned(lambda: write(lease, "c/third")) == 1
    if way == "remove":
        lease.fs.remove(parts("c/third"))
    else:
        lease.rename("outside", "c/third")
    assert learned(lambda: write(lease, "c/second")) == 0
    assert (root / "a/b/file").samefile(root / "c/second")


@pytest.mark.usefixtures("quickly")
@pytest.mark.parametrize("way", ["rename", "remove", "replace"])
def test_that_a_file_shows_nothing_hidden_stays_known_where_one_of_its_names_is_outside(
    root: Path, tmp_path: Path, lend: Lend, way: str
) -> None:
    for name in ("lent/c/second", "lent/c/third", "outside"):
        (tmp_path / name).hardlink_to(root / "a/b/file")
    lease = lend(patient=False)

    def read() -> None:
        file = lease.fs.open_read(parts("a/b/file"))
        file.read(1, 0)
        file.close()

    assert learned(read) == 1
    if way == "rename":
        lease.rename("c/third", "c/moved")
    elif way == "remove":
        lease.fs.remove(parts("c/third"))
    else:
        lease.rename("c/other", "c/third")
    assert learned(read) == 0
    (root / "c/fourth").hardlink_to(root / "a/b/file")
    assert learned(read) == 1, "whoever else gives it a name has it looked for"


# What is kept of what was there before


def test_what_a_rename_replaces_is_kept_and_what_it_moves_is_known(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    person_edits(root, "c/other", b"of a person")
    lease.rename("a/b/file", "c/other")
    lease.rename("c/other", "c/moved")
    write(lease, "c/moved")
    assert lease.kept() == [("c/other", "other", False), ("a/b/file", "first", False)]
    lease.link("c/moved", "c/again")
    write(lease, "c/again")
    lease.rename("c/again", "c/moved")
    lease.fs.remove(parts("c/again"))
    write(lease, "c/moved")
    assert len(lease.kept()) == 2


def test_what_is_replaced_must_be_kept_where_the_lease_must_keep_all(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root, limit=0))
    for old, new in (("a/b/file", "c/other"),):
        refused(lease, partial(lease.rename, old, new), new, NOT_KEPT, errno.EDQUOT)
    assert code_of(lambda: lease.rename("a/b/file", "c/other", replace=False)) == errno.EEXIST
    lease.rename("a/b/file", "c/new")


def test_what_is_given_to_a_repository_is_kept_as_it_was(repository: Path, tmp_path: Path, lend: Lend) -> None:
    (repository / ".git/refs/heads/x").write_bytes(TWO)
    (repository / "a/b/reference").write_bytes(ONE)
    lease = lend(keeper=Keeping(tmp_path / "kept", repository))
    lease.rename("a/b/reference", ".git/refs/heads/x")
    assert lease.kept() == [(".git/refs/heads/x", "first", False), ("a/b/reference", "first", False)]
    lease.put(".git/refs/heads/x.lock", TWO)
    lease.rename(".git/refs/heads/x.lock", ".git/refs/heads/x")
    assert len(lease.kept()) == 2, "the lease's own"
    full = lend(keeper=Keeping(tmp_path / "none", repository, limit=0))
    (repository / "a/b/reference").write_bytes(ONE)
    before = picture(repository)
    assert code_of(lambda: full.rename("a/b/reference", ".git/refs/heads/new")) == errno.EDQUOT
    assert full.denied == [("a/b/reference", NOT_KEPT)]
    assert picture(repository) == before


def test_a_directory_that_is_moved_keeps_its_mode_in_mind(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    (root / "a/b").chmod(0o711)
    lease.rename("a/b", "c/b")
    lease.fs.set_attributes(parts("c/b"), mode=0o755)
    assert lease.kept_directories() == [("a/b", "first", 0o711)]


def test_what_is_known_of_a_file_is_known_to_the_keeper_when_it_loses_a_name(
    root: Path, tmp_path: Path, lend: Lend
) -> None:
    (root / "c/second").hardlink_to(root / "a/b/file")
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    lease.rename("c/other", "c/second")
    write(lease, "a/b/file")
    assert lease.kept() == [("c/second", "first", False)]


def test_a_link_with_two_names_is_known_to_the_keeper_when_it_loses_one(root: Path, tmp_path: Path, lend: Lend) -> None:
    (root / "c/link").symlink_to("other")
    os.link(root / "c/link", root / "a/b/link", follow_symlinks=False)
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    fds = descriptors()
    lease.fs.remove(parts("a/b/link"))
    lease.rename("c/link", "c/moved")
    lease.fs.remove(parts("c/moved"))
    assert lease.kept() == [("a/b/link", "first", False)]
    assert descriptors() == fds


def test_a_link_that_was_renamed_is_kept_by_the_name_that_it_had(root: Path, tmp_path: Path, lend: Lend) -> None:
    (root / "c/link").symlink_to("other")
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    lease.rename("c/link", "c/moved")
    lease.fs.remove(parts("c/moved"))
    assert lease.kept() == [("c/link", "first", False)]


def test_nothing_is_followed_that_has_no_name_any_more(
    root: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a/empty").mkdir()
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    followed: list[object] = []
    monkeypatch.setattr(OverwriteKeeper, "followed", lambda self, *what: followed.append(what[2]))
    lease.fs.remove(parts("a/b/file"))
    assert followed == []
    lease.rename("c", "a/empty")
    assert followed == [b"c"]


def test_a_reference_that_was_taken_is_a_name_that_the_lease_has_made(
    repository: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", repository))
    lease.put(".git/refs/heads/x.lock", ONE)
    made: list[int] = []
    real = OverwriteKeeper.made

    def noted(self: OverwriteKeeper, status: os.stat_result) -> None:
        made.append(status.st_ino)
        real(self, status)

    monkeypatch.setattr(OverwriteKeeper, "made", noted)
    lease.rename(".git/refs/heads/x.lock", ".git/refs/heads/x")
    assert made == [(repository / ".git/refs/heads/x").stat().st_ino]

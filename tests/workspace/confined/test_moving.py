"""Renames and second names of files: what they leave, what they refuse, and what is known of a file afterwards."""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from attacks.kit.repository import index_of
from sublet.workspace.confined import moving, shared
from sublet.workspace.confined.changing import (
    DRAFT,
    FULL,
    HIDDEN,
    HIDES,
    HOLDS,
    LEADS_OUT,
    LOCKED,
    NOT_KEPT,
    NOT_MADE,
    SHARED,
    UNCHECKED,
)
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.export import ViewRules
from sublet.workspace.git.take import QUICK_BYTES
from sublet.workspace.own_names import OwnNames
from support.sftp_client import PathRules
from workspace.confined.leases import (
    ONLY_ADDS,
    Keeping,
    Lease,
    code_of,
    descriptors,
    learned,
    parts,
    person_edits,
    picture,
    refused,
)

ONE, TWO = b"1" * 40 + b"\n", b"2" * 40 + b"\n"
CONTENT = b"blob 5\0hello"
OBJECT = hashlib.sha1(CONTENT, usedforsecurity=False).hexdigest()


Lend = Callable[..., Lease]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "lent"
    for name in ("a/b", "c"):
        (found / name).mkdir(parents=True)
    (found / "a/b/file").write_bytes(b"content")
    (found / "c/other").write_bytes(b"of another length")
    return found


@pytest.fixture
def repository(root: Path) -> Path:
    for name in ("objects/aa", "refs/heads", "refs/tags"):
        (root / ".git" / name).mkdir(parents=True)
    (root / ".git/HEAD").write_bytes(b"ref: refs/heads/main\n")
    return root


@pytest.fixture
def lend(root: Path) -> Iterator[Lend]:
    made: list[Lease] = []

    def lease(rules: ViewRules | None = None, **more: object) -> Lease:
        made.append(Lease(root, rules, **more))
        return made[-1]

    yield lease
    for one in made:
        one.fs.close()


# Second names


def test_a_second_name_is_the_same_file_told_once_and_charged_as_a_name(root: Path, lend: Lend) -> None:
    lease = lend()
    fds = descriptors()
    lease.link("a/b/file", "c/second")
    assert (root / "c/second").samefile(root / "a/b/file")
    assert lease.told == ["c/second"]
    assert lease.used == (0, 1)
    assert lease.fs.names_changed == 1
    lease.link("c/second", "third")
    assert lease.fs.names_changed == 2
    assert (root / "third").stat().st_nlink == 3
    assert descriptors() == fds


def test_a_second_name_takes_no_other_s_place(root: Path, lend: Lend) -> None:
    lease = lend()
    before = picture(root)
    assert code_of(lambda: lease.link("a/b/file", "c/other")) == errno.EEXIST
    assert code_of(lambda: lease.link("a/b/none", "c/new")) == errno.ENOENT
    assert code_of(lambda: lease.link("a/b", "c/new")) == errno.EISDIR
    assert (picture(root), lease.used, lease.told) == (before, (0, 0), [])


def test_a_link_that_takes_the_place_of_a_file_gets_no_second_name_for_what_it_leads_to(
    root: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text("secret")
    lease = lend()
    real = os.link

    def planted(*arguments: object, **named: object) -> None:
        (root / "a/b/file").unlink()
        (root / "a/b/file").symlink_to("../../../secret")
        real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", planted)
    lease.link("a/b/file", "c/second")
    assert (tmp_path / "secret").stat().st_nlink == 1
    assert (root / "c/second").is_symlink()


def test_both_names_are_written_in_place_without_a_look_at_the_whole_directory(root: Path, lend: Lend) -> None:
    lease = lend(patient=False)
    lease.link("a/b/file", "c/second")
    for name in ("a/b/file", "c/second"):
        file = lease.fs.open_write(parts(name), os.O_WRONLY, 0)
        file.write(name.encode(), 0)
        file.close()
        assert (root / "a/b/file").read_bytes() == (root / "c/second").read_bytes() == name.encode()
    lease.rename("c/second", "c/moved")
    lease.fs.remove(parts("a/b/file"))
    file = lease.fs.open_write(parts("c/moved"), os.O_WRONLY, 0)
    file.write(b"1", 0)
    file.close()


def test_what_a_lease_only_named_a_second_time_is_not_its_own(root: Path, lend: Lend) -> None:
    lease = lend(ONLY_ADDS)
    lease.link("a/b/file", "c/second")
    refused(lease, lambda: lease.fs.remove(parts("c/second")), "c/second", NOT_MADE)
    refused(lease, lambda: lease.rename("c/second", "c/moved"), "c/second", NOT_MADE)
    lease.put("a/b/mine")
    lease.link("a/b/mine", "c/mine")
    lease.fs.remove(parts("a/b/mine"))
    lease.fs.remove(parts("c/mine"))
    assert picture(root).keys() == {"a", "a/b", "a/b/file", "c", "c/other", "c/second"}


def test_no_hidden_name_is_a_second_one_whosever_it_is(root: Path, lend: Lend) -> None:
    lease = lend()
    lease.put("a/mine.pem")
    refused(lease, lambda: lease.link("a/mine.pem", "c/free"), "a/mine.pem", HIDDEN)
    refused(lease, lambda: lease.link("a/b/file", "c/new.pem"), "c/new.pem", HIDDEN)
    refused(lease, lambda: lease.link("a/b/file", ".envrc"), ".envrc", LOCKED)


@pytest.mark.parametrize("way", ["link", "rename"])
def test_objects_stay_what_they_are(repository: Path, lend: Lend, way: str) -> None:
    lease = lend()
    place = f".git/objects/{OBJECT[:2]}/{OBJECT[2:]}"
    (repository / place).parent.mkdir(exist_ok=True)
    (repository / place).write_bytes(b"of the lender")
    lease.put(".git/objects/aa/tmp_obj_1", zlib.compress(CONTENT))
    before, used = picture(repository), lease.used
    act = lease.link if way == "link" else lease.rename
    for old, new, code in (
        (place, "a/b/copy", errno.EACCES),
        (place, place[:-1] + "0", errno.EACCES),
        ("a/b/file", ".git/objects/bb", errno.EACCES),
        (".git/objects/aa/tmp_obj_1", ".git/objects/bb", errno.EACCES),
        (".git/objects/aa/tmp_obj_1", place, errno.EEXIST),
    ):
        assert code_of(partial(act, old, new)) == code, (old, new)
        assert (picture(repository), lease.used) == (before, used)
    assert lease.told == []


@pytest.mark.parametrize("way", ["link", "rename"])
def test_an_object_is_looked_at_and_copied(repository: Path, lend: Lend, way: str) -> None:
    lease = lend()
    draft = f".git/objects/{OBJECT[:2]}/tmp_obj_1"
    place = f".git/objects/{OBJECT[:2]}/{OBJECT[2:]}"
    lease.fs.mkdir(parts(f".git/objects/{OBJECT[:2]}"), 0o755)
    lease.put(draft, zlib.compress(CONTENT))
    inode = (repository / draft).stat().st_ino
    (lease.link if way == "link" else lease.rename)(draft, place)
    size = len(zlib.compress(CONTENT))
    assert (repository / place).read_bytes() == zlib.compress(CONTENT)
    assert (repository / place).stat().st_ino != inode
    assert (repository / draft).exists() == (way == "link")
    assert lease.told == ([place] if way == "link" else [draft, place])
    assert lease.used == ((2 * size, 3) if way == "link" else (size, 2))
    assert lease.own_paths() == ([draft] if way == "link" else [])
    assert lease.fs.names_changed == 1


@pytest.mark.parametrize("way", ["link", "rename"])
def test_what_is_not_what_git_would_have_there_is_refused_and_told(repository: Path, lend: Lend, way: str) -> None:
    lease = lend()
    lease.put(".git/refs/heads/x.lock", b"no reference")
    act = lease.link if way == "link" else lease.rename
    fds = descriptors()
    refused(
        lease, lambda: act(".git/refs/heads/x.lock", ".git/refs/heads/x"), ".git/refs/heads/x", UNCHECKED, errno.EACCES
    )
    lease.put(".git/refs/heads/y.lock", b"1" * 100_000)
    refused(
        lease, lambda: act(".git/refs/heads/y.lock", ".git/refs/heads/y"), ".git/refs/heads/y", UNCHECKED, errno.EFBIG
    )
    assert descriptors() == fds


def test_a_reference_that_is_not_taken_for_another_reason_is_no_denial(repository: Path, lend: Lend) -> None:
    (repository / ".git/refs/heads/x").write_bytes(TWO)
    lease = lend()
    lease.put(".git/refs/heads/x.lock", ONE)
    before, used = picture(repository), lease.used
    assert code_of(lambda: lease.link(".git/refs/heads/x.lock", ".git/refs/heads/x")) == errno.EEXIST
    assert code_of(lambda: lease.rename(".git/refs/heads/x.lock", ".git/refs/heads/x", replace=False)) == errno.EEXIST
    assert (picture(repository), lease.used, lease.denied, lease.told) == (before, used, [], [])


def test_a_reference_that_is_replaced_gives_its_room_back(repository: Path, lend: Lend) -> None:
    (repository / ".git/refs/heads/x").write_bytes(b"ref: refs/heads/elsewhere\n")
    lease = lend()
    lease.put(".git/refs/heads/x.lock", ONE)
    lease.rename(".git/refs/heads/x.lock", ".git/refs/heads/x")
    assert (repository / ".git/refs/heads/x").read_bytes() == ONE
    assert not (repository / ".git/refs/heads/x.lock").exists()
    assert lease.used == (len(ONE) - len(b"ref: refs/heads/elsewhere\n"), 0)
    assert lease.told == [".git/refs/heads/x.lock", ".git/refs/heads/x"]
    assert lease.own_paths() == []


def test_there_is_room_for_both_while_one_is_taken(repository: Path, lend: Lend) -> None:
    lease = lend()
    lease.put(".git/refs/heads/x.lock", ONE)
    used = lease.used
    lease.quota.max_bytes = 2 * len(ONE) - 1
    for act in (lease.link, lease.rename):
        assert code_of(partial(act, ".git/refs/heads/x.lock", ".git/refs/heads/x")) == errno.EDQUOT
        assert lease.used == used
    lease.quota.max_bytes = 2 * len(ONE)
    lease.rename(".git/refs/heads/x.lock", ".git/refs/heads/x")
    assert lease.used == used


def test_nobody_gives_away_what_the_lenders_own_git_is_writing(repository: Path, lend: Lend) -> None:
    (repository / ".git/refs/heads/x.lock").write_bytes(ONE)
    lease = lend()
    for old, new in (
        (".git/refs/heads/x.lock", ".git/refs/heads/x"),
        (".git/refs/heads/x.lock", "a/b/copy"),
    ):
        refused(lease, partial(lease.link, old, new), old, DRAFT)
        refused(lease, partial(lease.rename, old, new), old, DRAFT)
    refused(lease, lambda: lease.rename("a/b/file", ".git/refs/heads/x.lock"), ".git/refs/heads/x.lock", DRAFT)
    (repository / ".git/objects/tmp_d").mkdir()
    for act in (lease.link, lease.rename):
        refused(lease, partial(act, "a/b/file", ".git/objects/tmp_d/y"), ".git/objects/tmp_d", DRAFT)
    lease.fs.mkdir(parts(".git/objects/tmp_e"), 0o755)
    lease.link("a/b/file", ".git/objects/tmp_e/y")
    assert lease.own_paths() == [".git/objects/tmp_e", ".git/objects/tmp_e/y"]


def test_names_of_drafts_are_bounded(repository: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = lend()
    monkeypatch.setattr(OwnNames, "has_room", lambda self, path: False)
    for act in (lease.link, lease.rename):
        refused(lease, partial(act, "a/b/file", ".git/refs/heads/y.lock"), ".git/refs/heads/y.lock", FULL)


# What takes long to look at


@pytest.mark.parametrize("way", ["link", "rename"])
def test_a_large_file_is_looked_at_before_and_a_small_one_at_once(
    repository: Path, lend: Lend, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "QUICK_BYTES", len(ONE) - 1)
    lease = lend()
    old, new = parts(".git/refs/heads/x.lock"), parts(".git/refs/tags/x")
    act = lease.fs.link if way == "link" else partial(lease.fs.rename, replace=True)
    lease.put(".git/refs/heads/x.lock", ONE[:-1])
    fds = descriptors()
    assert lease.fs.look(old, new) is None
    assert lease.fs.look(parts("a/b/file"), parts("c/new")) is None
    with (repository / ".git/refs/heads/x.lock").open("ab") as more:
        more.write(b"\n")
    looked = lease.fs.look(old, new)
    assert looked is not None
    assert code_of(lambda: act(old, new, looked)) == errno.EAGAIN  # nobody has looked
    looked.look()
    assert descriptors() == fds
    act(old, new, looked)
    assert (repository / ".git/refs/tags/x").read_bytes() == ONE


@pytest.mark.parametrize("way", ["link", "rename"])
def test_what_was_looked_at_is_what_is_taken(
    repository: Path, lend: Lend, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "QUICK_BYTES", 0)
    lease = lend()
    old, new = parts(".git/refs/heads/x.lock"), parts(".git/refs/tags/x")
    act = lease.fs.link if way == "link" else partial(lease.fs.rename, replace=True)
    lease.put(".git/refs/heads/x.lock", ONE)
    looked = lease.fs.look(old, new)
    assert looked is not None
    looked.look()
    lease.fs.remove(old)
    lease.put(".git/refs/heads/x.lock", TWO)
    lease.put(".git/refs/heads/y.lock", TWO)
    used = lease.used
    assert code_of(lambda: act(parts(".git/refs/heads/y.lock"), new, looked)) == errno.EAGAIN
    assert lease.used == used
    assert not (repository / ".git/refs/tags/x").exists()


def test_the_one_that_is_replaced_may_be_the_large_one(
    repository: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moving, "QUICK_BYTES", len(ONE))
    lease = lend()
    lease.put(".git/packed-refs.lock", ONE)
    old, new = parts(".git/packed-refs.lock"), parts(".git/packed-refs")
    assert lease.fs.look(old, new) is None
    (repository / ".git/packed-refs").write_bytes(b"#" * (len(ONE) + 1))
    looked = lease.fs.look(old, new)
    assert looked is not None
    looked.drop()
    (repository / "large").write_bytes(b"#" * (len(ONE) + 1))
    (repository / ".git/packed-refs").unlink()
    (repository / ".git/packed-refs").symlink_to("../large")
    (repository / "c/long").symlink_to("../large")
    assert lease.fs.look(old, new) is None
    assert lease.fs.look(parts("c/long"), parts(".git/refs/heads/x")) is None


def test_nothing_is_looked_at_for_what_is_refused(repository: Path, lend: Lend) -> None:
    lease = lend()
    (repository / ".envrc").write_bytes(b"x" * (QUICK_BYTES + 1))
    (repository / "large").write_bytes(b"x" * (QUICK_BYTES + 1))
    refused(lease, lambda: lease.fs.look(parts(".envrc"), parts(".git/refs/heads/x")), ".envrc", LOCKED)
    new = f".git/objects/{OBJECT[:2]}/{OBJECT[2:]}"
    with_rules = lend(PathRulesThatCheck(locked=(new.encode(),)))
    refused(with_rules, lambda: with_rules.fs.look(parts("large"), parts(new)), new, LOCKED)
    assert code_of(lambda: lease.fs.look(parts("none"), parts(".git/refs/heads/x"))) == errno.ENOENT


class PathRulesThatCheck(PathRules):
    def checked(self, parts: Sequence[bytes]) -> bool:
        return parts[0] == b".git"


def test_the_rules_of_the_lease_hold_for_what_an_index_names(repository: Path, lend: Lend) -> None:
    lease = lend()
    lease.put(".git/index.lock", index_of([(b".envrc", 0o100644, ONE.strip().decode())]))
    refused(lease, lambda: lease.rename(".git/index.lock", ".git/index"), ".git/index", UNCHECKED)
    looked = lease.fs.look(parts(".git/index.lock"), parts(".git/index"))
    assert looked is None


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
    assert picture(root).keys() == {"a", "c", "c/b", "c/moved", "c/other"}
    assert lease.fs.names_changed == 2
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
    real = moving.rename_noreplace

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


def test_objects_get_no_directory_that_nobody_has_looked_at(repository: Path, lend: Lend) -> None:
    lease = lend()
    lease.fs.mkdir(parts(".git/objects/tmp_d"), 0o755)
    before, used = picture(repository), lease.used
    lease.told.clear()
    assert code_of(lambda: lease.rename(".git/objects/tmp_d", ".git/objects/bb")) == errno.EACCES
    assert (picture(repository), lease.used, lease.told, lease.denied) == (before, used, [], [])


def test_a_file_whose_further_name_is_hidden_is_not_replaced(root: Path, lend: Lend) -> None:
    (root / "c/x.pem").hardlink_to(root / "c/other")
    lease = lend()
    for replace in (True, False):
        refused(lease, partial(lease.rename, "a/b/file", "c/other", replace=replace), "c/other", SHARED)
    assert code_of(lambda: lease.rename("c/other", "d")) == errno.ENOENT
    assert code_of(lambda: lease.link("c/other", "d")) == errno.ENOENT


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
    real = moving.rename_noreplace

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
    real = moving.rename_noreplace

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


def write(lease: Lease, path: str) -> None:
    file = lease.fs.open_write(parts(path), os.O_WRONLY, 0)
    try:
        file.write(b"theirs", 0)
    finally:
        file.close()


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
    (root / "c/third").hardlink_to(root / "a/b/file")
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    lease.rename("c/other", "c/third")
    write(lease, "c/second")
    assert ("c/third", "first", False) in lease.kept()
    assert ("c/second", "other", False) not in lease.kept()

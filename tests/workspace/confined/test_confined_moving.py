"""Second names of files, and what is taken into a repository of the lender's under another name."""

from __future__ import annotations

import errno
import hashlib
import os
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from attacks.kit.repository import index_of
from sublet.workspace.confined import moving
from sublet.workspace.confined.changing import (
    DRAFT,
    FULL,
    HIDDEN,
    LOCKED,
    NOT_MADE,
    UNCHECKED,
)
from sublet.workspace.git.take import QUICK_BYTES, looking
from sublet.workspace.own_names import OwnNames
from support.sftp_client import PathRules
from workspace.confined.leases import (
    ONE,
    ONLY_ADDS,
    RULES,
    TWO,
    Lend,
    code_of,
    descriptors,
    parts,
    picture,
    refused,
)

CONTENT = b"blob 5\0hello"
OBJECT = hashlib.sha1(CONTENT, usedforsecurity=False).hexdigest()


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


def test_a_name_that_is_there_fails_for_that_also_where_no_more_may_be_made(repository: Path, lend: Lend) -> None:
    (repository / ".git/refs/heads/x").write_bytes(TWO)
    lease = lend()
    lease.put(".git/refs/heads/x.lock", ONE)
    lease.quota.max_files = 1
    for old, new, code in (
        ("a/b/file", "c/other", errno.EEXIST),
        ("a/b/file", "c/new", errno.EDQUOT),
        (".git/refs/heads/x.lock", ".git/refs/heads/x", errno.EEXIST),
        (".git/refs/heads/x.lock", ".git/refs/heads/y", errno.EDQUOT),
    ):
        assert code_of(partial(lease.link, old, new)) == code
    assert lease.used == (len(ONE), 1)


def test_a_link_in_the_place_of_a_reference_is_replaced_and_given_back(repository: Path, lend: Lend) -> None:
    (repository / ".git/refs/heads/x").symlink_to("nowhere")
    lease = lend()
    lease.put(".git/refs/heads/x.lock", ONE)
    lease.rename(".git/refs/heads/x.lock", ".git/refs/heads/x")
    assert (repository / ".git/refs/heads/x").read_bytes() == ONE
    assert lease.used == (len(ONE), 0)


@pytest.mark.parametrize("way", ["link", "rename"])
def test_a_link_that_takes_the_place_of_a_draft_is_not_followed(
    repository: Path, lend: Lend, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend()
    lease.put(".git/refs/heads/x.lock", ONE)
    real = lease.fs._take
    used = lease.used

    def planted(*arguments: object, **named: object) -> None:
        (repository / ".git/refs/heads/x.lock").unlink()
        (repository / ".git/refs/heads/x.lock").symlink_to("nowhere")
        real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(lease.fs, "_take", planted)
    act = lease.link if way == "link" else lease.rename
    assert code_of(partial(act, ".git/refs/heads/x.lock", ".git/refs/heads/x")) == errno.ELOOP
    assert lease.used == used


def test_what_is_taken_is_charged_as_it_came_to_be(repository: Path, lend: Lend) -> None:
    lease = lend()
    lease.put(".git/refs/heads/x.lock", ONE)
    with lease.fs._parent(parts(".git/refs/heads/x")) as directory:
        looked = looking(directory, b"x.lock", directory, parts(".git/refs/heads/x"), RULES)
    looked.look()
    looked._content = ONE[:-1]
    lease.fs.link(parts(".git/refs/heads/x.lock"), parts(".git/refs/heads/x"), looked)
    assert lease.used == (2 * len(ONE) - 1, 2)


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

"""Files with names elsewhere, and what is kept of what was there before a change."""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from pathlib import Path
from typing import Any, cast

import pytest

from sublet.workspace.confined import copy_up, shared
from sublet.workspace.confined.changing import (
    MAX_COPIES,
    NOT_KEPT,
    SHARED,
)
from sublet.workspace.confined.copy_up import QUICK_BYTES, Copy
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.kept.contents import KeptContents
from sublet.workspace.kept.keeper import OverwriteKeeper
from support.noise import noise
from workspace.confined.leases import (
    Keeping,
    Lease,
    Lend,
    code_of,
    descriptors,
    learned,
    parts,
    person_edits,
    refused,
    touch,
    write,
)

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


def test_a_copy_is_charged_told_and_followed_by_open_handles(root: Path, outside: Path, lend: Lend) -> None:
    lease = lend()
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
    root: Path, outside: Path, lend: Lend
) -> None:
    lease = lend()
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
def test_no_more_is_copied_than_is_needed(root: Path, outside: Path, lend: Lend, size: int, charged: int) -> None:
    lease = lend()
    lease.fs.set_attributes(parts("c/linked"), size=size)
    assert (root / "c/linked").read_bytes() == b"outside"[:size].ljust(size, b"\0")
    assert lease.used == (charged, 0)


def test_a_copy_that_can_not_be_made_is_not_charged(
    root: Path, outside: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(copy_up, "copy_content", full)
    fds = descriptors()
    assert code_of(lambda: write(lease, "c/linked")) == errno.ENOSPC
    assert (lease.used, lease.told, descriptors()) == ((0, 0), [], fds)
    lease.quota.max_bytes = 6
    assert code_of(lambda: write(lease, "c/linked")) == errno.EDQUOT
    assert lease.used == (0, 0)


def test_a_name_that_leads_elsewhere_meanwhile_is_not_copied(root: Path, outside: Path, lend: Lend) -> None:
    lease = lend()
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


def test_a_file_that_has_come_to_be_a_hidden_ones_is_not_changed(root: Path, lend: Lend) -> None:
    lease = lend()
    file = lease.fs.open_write(parts("c/other"), os.O_RDWR, 0)
    (root / "a/b/x.pem").hardlink_to(root / "c/other")
    refused(lease, lambda: file.write(b"theirs", 0), "c/other", SHARED)
    refused(lease, lambda: file.truncate(0), "c/other", SHARED)
    refused(lease, lambda: file.set_mode(0o600), "c/other", SHARED)
    file.close()


def test_what_has_no_name_any_more_is_changed_for_whoever_has_it_open(root: Path, lend: Lend) -> None:
    lease = lend(keeper=None)
    file = lease.fs.open_write(parts("c/other"), os.O_RDWR, 0)
    lease.fs.remove(parts("c/other"))
    file.write(b"12", 0)
    assert file.read(2, 0) == b"12"
    file.close()


def test_a_private_view_changes_every_file_in_place(root: Path, outside: Path, lend: Lend) -> None:
    lease = lend(private=True)
    write(lease, "c/linked")
    assert outside.read_bytes() == b"theirse"


def test_a_link_with_a_name_elsewhere_gets_one_of_its_own(root: Path, tmp_path: Path, lend: Lend) -> None:
    (root / "c/link").symlink_to("other")
    os.link(root / "c/link", tmp_path / "link", follow_symlinks=False)
    before = (tmp_path / "link").lstat().st_mtime_ns
    lease = lend()
    lease.fs.set_modified(parts("c/link"), 5)
    assert (root / "c/link").lstat().st_mtime_ns == 5
    assert (tmp_path / "link").lstat().st_mtime_ns == before
    assert lease.used == (0, 0)
    assert os.readlink(root / "c/link") == "other"


def test_few_copies_wait_and_all_are_let_go(root: Path, tmp_path: Path, lend: Lend) -> None:
    names = [f"big{number}" for number in range(MAX_COPIES + 2)]
    for name in names:
        (tmp_path / name).write_bytes(b"o" * (QUICK_BYTES + 1))
        (root / "c" / name).hardlink_to(tmp_path / name)
    lease = lend(patient=False)
    fds = descriptors()
    for name in names:
        copy_only(lease, f"c/{name}")
        assert len(lease.fs._copies) <= MAX_COPIES
    assert [key[2].decode() for key in lease.fs._copies] == names[-MAX_COPIES:]
    assert lease.used == (0, 0)
    write(lease, f"c/{names[-1]}")
    assert len(lease.fs._copies) == MAX_COPIES - 1
    assert lease.used == (QUICK_BYTES + 1, 0)
    lease.fs.close()
    assert lease.fs._copies == {}
    assert descriptors() == fds - 1


def asked_to_copy(lease: Lease, path: str) -> NotKnownYet:
    """Find out all that has to be known before a file is copied, and return what copies it."""
    for _ in range(9):
        try:
            write(lease, path)
        except NotKnownYet as unknown:
            if unknown.learn.__qualname__.startswith("ChangingFs"):
                return unknown
            unknown.learn()
    raise AssertionError("it is never copied")


def copy_only(lease: Lease, path: str) -> None:
    asked_to_copy(lease, path).learn()


@pytest.mark.parametrize("learns", [True, False])
def test_a_copy_that_is_made_when_all_is_over_is_let_go(root: Path, tmp_path: Path, lend: Lend, learns: bool) -> None:
    (tmp_path / "big").write_bytes(b"o" * (QUICK_BYTES + 1))
    (root / "c/big").hardlink_to(tmp_path / "big")
    fds = descriptors()
    lease = lend(patient=False)
    unknown = asked_to_copy(lease, "c/big")
    lease.fs.close()
    if learns:
        unknown.learn()
    else:
        unknown.drop()
    assert lease.fs._copies == {}
    assert descriptors() == fds


def test_small_files_and_patient_ones_are_copied_at_once(
    root: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "CLOCK_NS", 0)
    for name, size in (("small", QUICK_BYTES), ("big", QUICK_BYTES + 1)):
        (tmp_path / name).write_bytes(b"o" * size)
        (root / "c" / name).hardlink_to(tmp_path / name)
    lease = lend(patient=False)
    assert learned(lambda: write(lease, "c/small")) == 1
    assert learned(lambda: write(lease, "c/big")) == 1
    patient = lend()
    (tmp_path / "more").write_bytes(b"o" * (QUICK_BYTES + 1))
    (root / "c/more").hardlink_to(tmp_path / "more")
    assert learned(lambda: write(patient, "c/more")) == 0


@pytest.mark.parametrize("what", ["file", "link"])
def test_what_is_known_of_the_other_names_stays_known_when_one_gets_a_copy(
    root: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(shared, "CLOCK_NS", 0)
    (tmp_path / "one").write_bytes(b"1") if what == "file" else (tmp_path / "one").symlink_to("nowhere")
    for name in ("a/b/one", "a/b/two", "c/three"):
        os.link(tmp_path / "one", root / name, follow_symlinks=False)
    lease = lend(patient=False)
    assert learned(lambda: lease.fs.lstat(parts("a/b/two"))) == 1
    assert learned(touch(lease, "a/b/one")) <= 1
    assert (root / "a/b/one").lstat().st_ino != (tmp_path / "one").lstat().st_ino
    assert learned(lambda: lease.fs.lstat(parts("a/b/two"))) == 0


def test_a_copy_that_somebody_takes_away_at_once_is_an_error_of_the_system(
    root: Path, outside: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    real = Copy.put

    def gone(self: Copy, name: bytes, source: os.stat_result) -> None:
        real(self, name, source)
        (root / "c/linked").unlink()

    monkeypatch.setattr(Copy, "put", gone)
    assert code_of(lambda: lease.fs.set_attributes(parts("c/linked"), mode=0o600)) == errno.ENOENT
    assert outside.stat().st_mode & 0o777 == 0o640


def test_a_link_that_takes_the_place_of_a_copy_is_what_the_keeper_hears_of(
    root: Path, outside: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    real, heard = Copy.put, list[bool]()

    def planted(self: Copy, name: bytes, source: os.stat_result) -> None:
        real(self, name, source)
        (root / "c/linked").unlink()
        (root / "c/linked").symlink_to("other")

    monkeypatch.setattr(Copy, "put", planted)
    monkeypatch.setattr(
        OverwriteKeeper, "copied_up", lambda self, before, after: heard.append(stat.S_ISLNK(after.st_mode))
    )
    code_of(lambda: lease.fs.set_attributes(parts("c/linked"), mode=0o600))
    assert heard == [True]


def test_a_copy_is_kept_though_another_thread_has_taken_all_others_away(root: Path, tmp_path: Path, lend: Lend) -> None:
    class Emptied(OrderedDict[object, object]):
        def popitem(self, last: bool = True) -> tuple[object, object]:
            found = super().popitem(last)
            cast("Copy", found[1]).discard()
            self.clear()
            raise KeyError

    for number in range(MAX_COPIES + 1):
        (tmp_path / f"big{number}").write_bytes(b"o" * (QUICK_BYTES + 1))
        (root / f"c/big{number}").hardlink_to(tmp_path / f"big{number}")
    lease = lend(patient=False)
    lease.fs._copies = Emptied()  # type: ignore[assignment]
    for number in range(MAX_COPIES):
        copy_only(lease, f"c/big{number}")
    waiting = list(lease.fs._copies.values())
    copy_only(lease, f"c/big{MAX_COPIES}")
    assert len(lease.fs._copies) == 1
    for copy in waiting[1:]:
        copy.discard()
    lease.fs._copies = OrderedDict(lease.fs._copies)


# What is kept of what was there


def test_what_has_another_name_meanwhile_is_kept_through_the_handle(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    file = lease.fs.open_write(parts("a/b/file"), os.O_WRONLY, 0)
    (root / "a/b/file").rename(root / "a/b/moved")
    assert code_of(lambda: file.write(b"theirs", 0)) == errno.ESTALE
    assert [lost for _, _, lost in lease.kept()] == [False]
    assert (root / "a/b/moved").read_bytes() == b"content"
    file.close()


def test_of_a_large_file_only_what_is_overwritten_is_kept(
    root: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(KeptContents, "may_share", lambda self, status: False)
    (root / "a/b/large").write_bytes(noise(3 << 20))
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    file = lease.fs.open_write(parts("a/b/large"), os.O_WRONLY, 0)
    file.write(b"theirs", 0)
    kept = kept_bytes(tmp_path)
    assert kept < 1 << 20
    file.write(b"theirs", 2 << 20)
    file.close()
    assert kept < kept_bytes(tmp_path) < 1 << 20


def kept_bytes(tmp_path: Path) -> int:
    """Return the bytes on the disk that states before take."""
    return sum(path.lstat().st_blocks * 512 for path in (tmp_path / "kept").rglob("*") if path.is_file())


def test_what_goes_before_the_keeper_looks_at_it_is_passed_over(
    root: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    real = os.utime

    def gone(name: bytes, *more: Any, **named: Any) -> None:
        real(name, *more, **named)
        (root / "c/other").unlink()

    monkeypatch.setattr(os, "utime", gone)
    touch(lease, "c/other")()
    assert lease.told == ["c/other"]


def test_a_handle_whose_descriptor_is_gone_is_forgotten_all_the_same(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    file = lease.fs.open_write(parts("c/other"), os.O_WRONLY, 0)
    file.write(b"1", 0)
    lease.quota.closing(file.fd)
    os.close(file.fd)
    assert code_of(file.close) == errno.EBADF
    assert lease.fs._open_files == set()


def test_a_link_of_its_own_is_a_name_that_the_lease_has_made(
    root: Path, tmp_path: Path, lend: Lend, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "c/link").symlink_to("other")
    os.link(root / "c/link", tmp_path / "link", follow_symlinks=False)
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    made: list[int] = []
    real = OverwriteKeeper.made

    def noted(self: OverwriteKeeper, status: os.stat_result) -> None:
        made.append(status.st_ino)
        real(self, status)

    monkeypatch.setattr(OverwriteKeeper, "made", noted)
    lease.fs.set_modified(parts("c/link"), 5)
    assert made == [(root / "c/link").lstat().st_ino]


def test_what_was_there_is_kept_whatever_it_is_opened_for(root: Path, tmp_path: Path, lend: Lend) -> None:
    (root / "c/link").symlink_to("other")
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    write(lease, "a/b/file")
    lease.fs.remove(parts("c/link"))
    lease.fs.set_attributes(parts("c/other"), times=(1, 1))
    assert lease.kept() == [("a/b/file", "first", False), ("c/link", "first", False), ("c/other", "first", False)]


def test_what_the_lease_left_is_not_kept_again(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    lease.put("new", b"1")
    lease.fs.symlink(b"new", parts("link"))
    lease.fs.mkdir(parts("dir"), 0o700)
    lease.fs.set_attributes(parts("new"), mode=0o600)
    lease.fs.set_modified(parts("link"), 5)
    lease.fs.set_attributes(parts("dir"), mode=0o755)
    write(lease, "new")
    lease.fs.remove(parts("new"))
    lease.fs.remove(parts("link"))
    lease.fs.rmdir(parts("dir"))
    assert (lease.kept(), lease.kept_directories()) == ([], [])
    lease.fs.set_attributes(parts("a/b"), mode=0o711)
    lease.fs.set_attributes(parts("a/b"), mode=0o755)
    (root / "c/other").unlink()
    lease.fs.rmdir(parts("c"))
    assert [(path, by) for path, by, _ in lease.kept_directories()] == [("a/b", "first"), ("c", "first")]


def test_another_s_edit_is_kept_at_each_turn(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    file = lease.fs.open_write(parts("a/b/file"), os.O_WRONLY, 0)
    file.write(b"1", 0)
    person_edits(root, "a/b/file", b"of a person")
    file.write(b"2", 0)
    file.close()
    person_edits(root, "a/b/file", b"once more, longer")
    write(lease, "a/b/file")
    assert [by for _, by, _ in lease.kept()] == ["first", "other", "other"]


def test_what_can_not_be_kept_is_not_changed_where_all_must_be(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root, limit=0))
    for action in (
        lambda: write(lease, "a/b/file"),
        lambda: lease.fs.remove(parts("a/b/file")),
        touch(lease, "a/b/file"),
    ):
        refused(lease, action, "a/b/file", NOT_KEPT, errno.EDQUOT)


def test_a_copy_holds_what_the_lease_left_in_the_one_before(
    root: Path, outside: Path, tmp_path: Path, lend: Lend
) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
    write(lease, "c/linked")
    write(lease, "c/linked")
    assert lease.kept() == [("c/linked", "first", False)]
    (root / "c/link").symlink_to("other")
    os.link(root / "c/link", tmp_path / "link", follow_symlinks=False)
    lease.fs.set_modified(parts("c/link"), 5)
    kept = lease.kept()
    lease.fs.set_modified(parts("c/link"), 6)
    assert lease.kept() == kept


def test_the_keeper_is_told_when_a_handle_is_done(root: Path, tmp_path: Path, lend: Lend) -> None:
    lease = lend(keeper=Keeping(tmp_path / "kept", root))
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

"""Files with several names: shown where none of them is hidden, and changed in the view alone."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from sublet.disk.openat2 import choose_opener
from sublet.workspace.confined import shared
from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.nested_mounts import NestedMounts
from sublet.workspace.confined.shared import SharedFiles, is_shared, is_shared_at
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota
from support.sftp_client import PathRules

INSIDE = ("lent/a", "lent/b", "lent/d/c", "lent/d/e", "lent/hid/x", "lent/d/hidden", "lent/lock/l")
OUTSIDE = ("out/o", "out/p")
RULES = PathRules(hidden=(b"hid", b"d/hidden"), locked=(b"lock",))
HIDDEN = {"lent/hid/x", "lent/d/hidden"}


def lay_out(root: Path, random: Random) -> list[list[str]]:
    """Make files, each with some of the names, and return the names of each."""
    for name in ("lent/d", "lent/hid", "lent/lock", "out"):
        (root / name).mkdir(parents=True)
    names = [*INSIDE, *OUTSIDE]
    random.shuffle(names)
    files: list[list[str]] = []
    while names:
        taken, names = names[: (size := random.randint(1, 4))], names[size:]
        (root / taken[0]).write_bytes(b"before")
        for name in taken[1:]:
            (root / name).hardlink_to(root / taken[0])
        files.append(taken)
    return files


def parts(name: str) -> list[bytes]:
    return name.removeprefix("lent/").encode().split(b"/")


def done(action: Callable[[], object], *, patient: bool) -> int | None:
    """Do something, and what has to be found out before; return the error's number."""
    for _ in range(9):
        try:
            action()
        except NotKnownYet as unknown:
            assert not patient
            unknown.learn()
        except OSError as exc:
            return exc.errno
        else:
            return None
    raise AssertionError("what is to be found out changes all the time")


@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_file_is_shown_where_no_name_is_hidden_and_changed_where_the_view_shows_it_alone(
    tmp_path: Path, seed: int, patient: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    files = lay_out(tmp_path, Random(seed))
    fs = WritableFs(ConfinedFs.open_root(tmp_path / "lent"), RULES, Quota(None, None), lambda _: None, patient=patient)
    fds = len(os.listdir("/proc/self/fd"))

    def write(name: str) -> None:
        file = fs.open_write(parts(name), os.O_WRONLY, 0o600)
        try:
            file.write(b"behind", 0)
        finally:
            file.close()

    for names in files:
        visible = not HIDDEN & set(names)
        inside = [name for name in names if name in INSIDE]
        for name in inside:
            shown = done(lambda name=name: fs.lstat(parts(name)), patient=patient)  # type: ignore[misc]
            assert shown == (None if visible else errno.ENOENT), (name, names)
        free = [name for name in inside if not name.startswith("lent/lock")]
        if visible and free:
            assert done(lambda free=free: write(free[0]), patient=patient) is None, names  # type: ignore[misc]
            alone = len(free) == len(names)
            for name in names:
                changed = name == free[0] or alone
                assert (tmp_path / name).read_bytes() == (b"behind" if changed else b"before"), (name, names)
        for name in names:
            if not (visible and free):
                assert (tmp_path / name).read_bytes() == b"before"
    assert sorted(os.listdir(tmp_path / "lent/d")) == ["c", "e", "hidden"]
    assert len(os.listdir("/proc/self/fd")) <= fds + (0 if patient else len(files))
    fs.close()


@dataclass
class Known:
    """What is known of one directory, and a look over it that is counted."""

    root: Path
    files: SharedFiles
    looks: list[int]

    def status(self, name: str) -> os.stat_result:
        return (self.root / name).lstat()

    def hidden(self, name: str) -> bool:
        return self.files.shows_hidden(self.status(name), name.encode().split(b"/"), patient=True)

    def inside(self, name: str) -> bool:
        return self.files.stays_inside(self.status(name), name.encode().split(b"/"), patient=True)


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Known]:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(shared, "CLOCK_NS", -(10**12))  # all that was there before a look is older than it
    fd = os.open(tmp_path, os.O_RDONLY)
    looks: list[int] = []
    plain = SharedFiles._look_over

    def counted(self: SharedFiles, root: int) -> object:
        looks.append(root)
        return plain(self, root)

    monkeypatch.setattr(SharedFiles, "_look_over", counted)
    own = tmp_path / "hid/own"
    files = SharedFiles(
        fd, RULES, NestedMounts(fd), choose_opener(), lambda parts, status, *_: parts[-1] == b"own" and own.exists()
    )
    (tmp_path / "hid").mkdir()
    for name in ("a", "s", "o"):
        (tmp_path / name).write_text(name)
    (tmp_path / "hid/x").hardlink_to(tmp_path / "s")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    own.hardlink_to(tmp_path / "o")
    yield Known(tmp_path, files, looks)
    os.close(fd)


def test_one_look_holds_for_all_files_that_have_not_changed_since(known: Known) -> None:
    assert [known.hidden(name) for name in ("a", "b", "s", "hid/x", "o")] == [False, False, True, True, False]
    assert [known.inside(name) for name in ("a", "b", "o")] == [True, True, True]
    assert len(known.looks) == 1


def test_a_file_with_many_names_is_taken_to_have_others(known: Known) -> None:
    for number in range(shared.MAX_NAMES - 2):
        (known.root / f"n{number}").hardlink_to(known.root / "a")
    assert shared.MAX_NAMES == 64
    assert known.inside("a")
    (known.root / "one-more").hardlink_to(known.root / "a")
    assert not known.inside("a")


def test_a_directory_with_too_many_names_shows_no_file_with_several(
    known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MAX_LOOK_ENTRIES", 7)
    assert not known.hidden("a")
    monkeypatch.setattr(shared, "MAX_LOOK_ENTRIES", 3)
    (known.root / "c").hardlink_to(known.root / "a")
    again = SharedFiles(os.open(known.root, os.O_RDONLY), RULES, known.files._mounts, choose_opener(), lambda *_: False)
    status = known.status("a")
    assert again.shows_hidden(status, [b"a"], patient=True)


def test_what_the_lease_did_itself_needs_no_further_look(known: Known) -> None:
    assert not known.hidden("a")
    before = known.status("a")
    (known.root / "c").hardlink_to(known.root / "a")
    after = known.status("a")
    known.files.linked(before, after, [b"a"], [b"c"])
    assert not known.hidden("c")
    assert known.inside("a")
    (known.root / "c").rename(known.root / "d")
    known.files.changed(after, known.status("a"), 0)
    known.files.renamed(known.status("a"), [b"d"])
    assert not known.hidden("d")
    assert known.inside("d")
    assert len(known.looks) == 1


def test_what_has_one_name_is_not_shared(tmp_path: Path) -> None:
    (tmp_path / "one").touch()
    (tmp_path / "two").touch()
    (tmp_path / "second").hardlink_to(tmp_path / "two")
    (tmp_path / "dir/sub").mkdir(parents=True)
    fd = os.open(tmp_path, os.O_RDONLY)
    for name, found in (("one", False), ("two", True), ("second", True), ("dir", False)):
        assert is_shared((tmp_path / name).lstat()) is found
        assert is_shared_at(fd, name.encode()) is found
    assert not is_shared_at(fd, b"none")
    assert not is_shared_at(fd, b"one/x")
    os.close(fd)

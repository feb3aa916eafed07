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


# How long a look waits, and for whom it holds


class Clock:
    """Time as a test wants it: what waits makes it pass, and so does a look, which takes ``cost`` seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.wall_ns, self.cost = 1000.0, 0, 0.0
        self.slept: list[float] = []
        self.looks = 0
        plain = SharedFiles._look_over

        def look(files: SharedFiles, root: int) -> object:
            self.looks += 1
            self.now += self.cost
            return plain(files, root)

        monkeypatch.setattr(SharedFiles, "_look_over", look)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time_ns", lambda: self.wall_ns)
        monkeypatch.setattr(time, "sleep", self.slept.append)
        monkeypatch.setattr(shared, "_clock_offset", lambda: 0.0)


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[SharedFiles]:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    (tmp_path / "hid").mkdir()
    fd = os.open(tmp_path, os.O_RDONLY)
    yield SharedFiles(fd, RULES, NestedMounts(fd), choose_opener(), lambda *_: False)
    os.close(fd)


def learning(files: SharedFiles, status: os.stat_result) -> Callable[[], None]:
    learn, _ = files._learn(status)
    return learn


def test_looking_takes_no_more_than_half_of_the_time(
    tmp_path: Path, lone: SharedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    status = (tmp_path / "a").stat()
    clock.wall_ns = status.st_ctime_ns + 10**9
    for cost, pause in ((0.5, 0.0), (5.0, 0.5), (0.25, shared.MAX_PAUSE_SECONDS), (0.0, 0.25), (0.0, 0.0)):
        clock.cost = cost
        lone._moved = True  # so that each has to look
        learning(lone, status)()
        assert clock.slept.pop() == pause
    clock.now += 10
    lone._moved = True
    learning(lone, status)()
    assert clock.slept.pop() == 0.0
    assert clock.looks == 6
    assert not lone._moved


@pytest.mark.parametrize(
    ("age_ns", "pause"),
    [(-(10**9), 0.02), (0, 0.02), (5_000_000, 0.015), (shared.CLOCK_NS, 0.0), (10**10, 0.0)],
)
def test_what_has_just_changed_settles_first(
    tmp_path: Path, lone: SharedFiles, monkeypatch: pytest.MonkeyPatch, age_ns: int, pause: float
) -> None:
    clock = Clock(monkeypatch)
    status = (tmp_path / "a").stat()
    clock.wall_ns = status.st_ctime_ns + age_ns
    learning(lone, status)()
    assert clock.slept == [pytest.approx(pause)]
    assert lone._verdict(status) is False, "also where the clock is behind"
    assert lone._look is not None
    assert lone._look.since_ns == clock.wall_ns - shared.CLOCK_NS


def test_of_those_who_wait_one_looks(tmp_path: Path, lone: SharedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    status = (tmp_path / "a").stat()
    clock.wall_ns = status.st_ctime_ns + 10**9
    fds = len(os.listdir("/proc/self/fd"))
    first, second, third = (learning(lone, status) for _ in range(3))
    clock.now += 1
    first()
    second()
    assert clock.looks == 1
    lone._moved = True
    third()
    assert clock.looks == 2, "names are others now"
    fourth = learning(lone, status)
    fourth()
    assert clock.looks == 3, "nobody has looked since it was asked"
    fifth = learning(lone, status)
    clock.now += 1
    lone._look, lone._looked_at = None, clock.now
    fifth()
    assert clock.looks == 4, "nothing is known of it"
    assert not lone._looking.locked()
    assert len(os.listdir("/proc/self/fd")) == fds


def test_a_look_that_fails_is_none(tmp_path: Path, lone: SharedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    status = (tmp_path / "a").stat()

    def fails(files: SharedFiles, root: int) -> object:
        os.close(root)
        raise OSError(errno.EIO, "")

    for moved in (True, False):
        lone._moved = moved
        with monkeypatch.context() as patched:
            patched.setattr(SharedFiles, "_look_over", fails)
            with pytest.raises(OSError, match="Errno 5"):
                learning(lone, status)()
        assert lone._moved is moved
        assert lone._look is None
        assert not lone._looking.locked()


@pytest.mark.parametrize(("by", "known_still"), [(0.0, True), (1.0, True), (-1.0, True), (1.5, False), (-1.5, False)])
def test_a_clock_that_was_set_has_everything_looked_at_again(
    tmp_path: Path, lone: SharedFiles, monkeypatch: pytest.MonkeyPatch, by: float, known_still: bool
) -> None:
    clock = Clock(monkeypatch)
    status = (tmp_path / "a").stat()
    clock.wall_ns = status.st_ctime_ns + 10**9
    assert lone._verdict(status) is None
    learning(lone, status)()
    monkeypatch.setattr(shared, "_clock_offset", lambda: by)
    assert lone._verdict(status) is (False if known_still else None)
    learning(lone, status)()
    assert lone._verdict(status) is False


def test_a_look_holds_for_what_changed_before_it(
    tmp_path: Path, lone: SharedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    status = (tmp_path / "a").stat()
    clock.wall_ns = status.st_ctime_ns + 10**9
    learning(lone, status)()
    assert lone._look is not None
    for since, verdict in ((status.st_ctime_ns, None), (status.st_ctime_ns + 1, False)):
        lone._look.since_ns = since
        assert lone._verdict(status) is verdict
    lone._look.hidden.add(status.st_ino)
    assert lone._verdict(status) is True
    lone._look.hidden.clear()
    lone._look.whole = False
    assert lone._verdict(status) is True


# What is kept


def test_verdicts_are_bounded_and_the_oldest_goes(
    tmp_path: Path, lone: SharedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared, "MAX_VERDICTS", 2)
    statuses = [(tmp_path / name).lstat() for name in ("a", "hid", ".")]
    for status in (*statuses[:2], statuses[0], statuses[2]):
        lone._remember(status, True)
    assert list(lone._verdicts) == [statuses[0].st_ino, statuses[2].st_ino]
    assert lone._verdicts[statuses[0].st_ino] == (statuses[0].st_nlink, statuses[0].st_ctime_ns, True)


def test_names_are_bounded_and_the_oldest_go(lone: SharedFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    lone._keep(1, {b"12345", b"1"})
    lone._keep(2, {b"abc"})
    assert lone._linked_bytes == 306 + 153
    lone._keep(1, {b"12345"})
    assert (lone._linked_bytes, list(lone._linked)) == (155 + 153, [2, 1])
    monkeypatch.setattr(shared, "MAX_NAMES_BYTES", 155 + 153 + 150)
    lone._keep(3, set())
    assert list(lone._linked) == [2, 1, 3]
    lone._keep(4, {b"x"})
    assert (lone._linked_bytes, list(lone._linked)) == (155 + 151, [1, 3, 4])
    monkeypatch.setattr(shared, "MAX_NAMES_BYTES", -1)
    lone._keep(5, {b"x"})
    assert (lone._linked_bytes, list(lone._linked)) == (0, [])
    assert lone._known(1) == set()


def test_of_one_file_no_more_names_are_kept_than_are_compared(tmp_path: Path, lone: SharedFiles) -> None:
    status = (tmp_path / "a").stat()
    lone.renamed(status, [b"d", b"none"])
    assert lone._linked == {}
    lone.linked(status, status, [b"a"], [b"d", b"n"])
    lone.renamed(status, [b"d", b"new"])
    assert lone._known(status.st_ino) == {b"a", b"d/n", b"d/new"}
    for way in ("linked", "renamed"):
        lone._keep(status.st_ino, {b"a"})
        for number in range(2 * shared.MAX_NAMES):
            if way == "linked":
                lone.linked(status, status, [b"a"], [b"n%d" % number])
            else:
                lone.renamed(status, [b"n%d" % number])
        assert lone._known(status.st_ino) == {b"a", *(b"n%d" % one for one in range(2 * shared.MAX_NAMES - 1))}


def test_only_a_change_of_the_leases_own_is_remembered(tmp_path: Path, lone: SharedFiles) -> None:
    two = (tmp_path / "a").stat()
    (tmp_path / "c").hardlink_to(tmp_path / "a")
    three = (tmp_path / "a").stat()
    (tmp_path / "one").write_text("1")
    one = (tmp_path / "one").stat()
    for before, after, more, remembered in (
        (two, three, 1, True),
        (two, three, 0, False),
        (three, two, -1, True),
        (two, two, 0, True),
        (one, one, 0, False),
        (two, three, 2, False),
    ):
        lone._verdicts.clear()
        lone.changed(before, after, more)
        assert list(lone._verdicts.values()) == ([(after.st_nlink, after.st_ctime_ns, False)] if remembered else [])


def test_a_directory_that_was_moved_matters_where_names_are_known(tmp_path: Path, lone: SharedFiles) -> None:
    lone.moved()
    assert lone._moved is False
    lone._keep(1, {b"x"})
    lone.moved()
    assert lone._moved is True
    learning(lone, (tmp_path / "a").stat())()
    assert (lone._moved, lone._linked, lone._linked_bytes) == (False, {}, 0)
    assert lone._look is not None
    lone.moved()
    assert lone._moved is True
    lone._moved = False
    lone._look.names.clear()
    lone.moved()
    assert lone._moved is False


# What a look finds


def test_a_look_knows_the_names_of_files_that_have_none_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "lent"
    (root / "d/deeper").mkdir(parents=True)
    (root / "hid/inner").mkdir(parents=True)
    (root / "mounted").mkdir()
    for name in ("all", "some", "hidden", "own", "covered"):
        (root / name).write_text(name)
    (root / "d/deeper/all").hardlink_to(root / "all")
    (tmp_path / "some").hardlink_to(root / "some")
    (root / "d/some").hardlink_to(root / "some")
    (root / "hid/inner/x").hardlink_to(root / "hidden")
    (root / "hid/own").hardlink_to(root / "own")
    (root / "mounted/x").hardlink_to(root / "covered")
    (root / "alone").write_text("1")
    (root / "d/link").symlink_to("../all")
    fd = os.open(root, os.O_RDONLY)
    mounts = NestedMounts(fd)
    monkeypatch.setattr(mounts, "covers", lambda parts: parts[0] == b"mounted")
    asked: list[tuple[object, ...]] = []

    def own(parts: object, status: os.stat_result, directory: int, name: bytes) -> bool:
        assert os.path.samestat(os.stat(name, dir_fd=directory, follow_symlinks=False), status)
        asked.append((parts, name))
        return name == b"own"

    files = SharedFiles(fd, RULES, mounts, choose_opener(), own)
    look = files._look_over(os.dup(fd))
    inodes = {name: (root / name).stat().st_ino for name in ("all", "some", "hidden", "own", "covered")}
    assert look.whole
    assert look.hidden == {inodes["hidden"]}
    assert look.names == {
        inodes["all"]: {b"all", b"d/deeper/all"},
        inodes["own"]: {b"own", b"hid/own"},
    }
    assert sorted(asked) == [((b"hid", b"inner", b"x"), b"x"), ((b"hid", b"own"), b"own")]
    monkeypatch.setattr(shared, "MAX_NAMES", 1)
    assert files._look_over(os.dup(fd)).names == {}
    monkeypatch.setattr(shared, "MAX_NAMES", 2)
    assert len(files._look_over(os.dup(fd)).names) == 2
    monkeypatch.setattr(shared, "MAX_NAMES_BYTES", 1)
    assert files._look_over(os.dup(fd)).names == {}
    os.close(fd)


@pytest.mark.parametrize(("entries", "whole"), [(2, False), (3, True), (4, True)])
def test_a_look_covers_a_number_of_names(
    tmp_path: Path, lone: SharedFiles, monkeypatch: pytest.MonkeyPatch, entries: int, whole: bool
) -> None:
    monkeypatch.setattr(shared, "MAX_LOOK_ENTRIES", entries)
    assert lone._look_over(os.open(tmp_path, os.O_RDONLY)).whole is whole


def test_a_name_leads_to_a_file_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("d", "lock", "hid", "mounted"):
        (tmp_path / name).mkdir()
    (tmp_path / "d/a").write_text("a")
    for name in ("lock/a", "hid/a", "hid/own", "mounted/a"):
        (tmp_path / name).hardlink_to(tmp_path / "d/a")
    (tmp_path / "d/link").symlink_to("a")
    (tmp_path / "to").symlink_to("d")
    fd = os.open(tmp_path, os.O_RDONLY)
    mounts = NestedMounts(fd)
    monkeypatch.setattr(mounts, "covers", lambda parts: parts[0] == b"mounted")
    files = SharedFiles(fd, RULES, mounts, choose_opener(), lambda parts, status, at, name: name == b"own")
    status = (tmp_path / "d/a").stat()
    fds = len(os.listdir("/proc/self/fd"))
    for name, changed, leads in (
        ("d/a", False, True),
        ("d/a", True, True),
        ("lock/a", False, True),
        ("lock/a", True, False),
        ("hid/a", False, False),
        ("hid/own", False, True),
        ("mounted/a", False, False),
        ("d/link", False, False),
        ("d/none", False, False),
        ("to/a", False, False),
        ("none/a", False, False),
    ):
        assert files._leads(name.encode().split(b"/"), status, changed=changed) is leads, name
    assert not files._leads([], status, changed=False)
    assert len(os.listdir("/proc/self/fd")) == fds
    os.close(fd)

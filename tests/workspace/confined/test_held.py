"""What a directory holds that is moved by nobody, and how little is looked at to know it."""

from __future__ import annotations

import errno
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sublet.workspace.confined import held
from sublet.workspace.confined.bounds import MAX_DEPTH
from sublet.workspace.confined.descend import Level
from sublet.workspace.confined.held import Below, HeldBelow, _climb, _Listed, check_below
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.shared import CLOCK_NS
from support.sftp_client import PathRules

FREE = "free"


class Rules(PathRules):
    """Names that begin with ``hidden``, ``locked`` or ``only`` are that; only these are notable."""

    def notable(self, name: bytes) -> bool:
        return name.startswith((b"hidden", b"locked", b"only"))

    def hidden(self, parts: Sequence[bytes]) -> bool:
        return parts[-1].startswith(b"hidden")

    def locked(self, parts: Sequence[bytes]) -> bool:
        return parts[-1].startswith(b"locked") and parts[:2] == (b"top", b"a")

    def directory_only(self, parts: Sequence[bytes]) -> bool:
        return parts[-1].startswith(b"only") and parts[0] == b"top"


class Shared:
    """Tells of a file that it shows a hidden one, as it is asked."""

    def __init__(self, *names: tuple[bytes, ...]) -> None:
        self.names = names
        self.asked: list[tuple[tuple[bytes, ...], bool]] = []

    def shows_hidden(self, status: os.stat_result, parts: Sequence[bytes], *, patient: bool) -> bool:
        assert status.st_nlink > 1
        self.asked.append((tuple(parts), patient))
        return tuple(parts) in self.names


class Looking:
    """``HeldBelow`` of one directory, and what it asks."""

    def __init__(self, root: Path, shared: Shared | None = None) -> None:
        self.root = root
        self.own: list[tuple[bytes, ...]] = []
        self.asked: list[tuple[tuple[bytes, ...], int, bytes]] = []
        self.held = HeldBelow(Rules(), self._own, shared)  # type: ignore[arg-type]

    def _own(self, parts: Sequence[bytes], status: os.stat_result, directory: int, name: bytes) -> bool:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        assert os.path.samestat(found, status)
        self.asked.append((tuple(parts), status.st_ino, name))
        return tuple(parts) in self.own

    def below(self, name: str = "top", *, patient: bool = True) -> Below:
        directory = os.open(self.root, os.O_RDONLY)
        try:
            return self.held.below(directory, (name.encode(),), patient=patient)
        finally:
            os.close(directory)

    def known(self) -> set[str]:
        """Return the directories that would not be listed again."""
        found = {path.stat().st_ino: str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.is_dir()}
        return {found.get(inode, "?") for inode in self.held._listed}


Make = Callable[..., Looking]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "top/a/deep").mkdir(parents=True)
    (tmp_path / "top/b").mkdir()
    for name in ("top/f", "top/a/f", "top/a/deep/f", "top/b/f"):
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.fixture
def make(root: Path) -> Iterator[Make]:
    before = len(os.listdir("/proc/self/fd"))

    def looking(shared: Shared | None = None) -> Looking:
        return Looking(root, shared)

    yield looking
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what was made a moment ago be old enough to be kept in mind."""
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 2 * CLOCK_NS)


def test_what_is_free_may_be_moved_and_is_measured(make: Make) -> None:
    assert make().below() == Below(room=None, height=2, looks=(1 + 2) + (1 + 1) + 1 + 1)


@pytest.mark.parametrize(
    ("name", "held_there"),
    [
        ("top/hidden", True),
        ("top/a/hidden", True),
        ("top/a/deep/hidden.d/", True),
        ("top/a/locked", True),
        ("top/b/locked", False),
        ("top/locked", False),
        ("top/a/deep/only", True),
        ("top/b/only", True),
        ("top/a/deep/only.d/", False),
        ("top/a/deep/other", False),
        ("hidden", False),
    ],
)
def test_names_of_the_lenders_hold_what_is_above_them(root: Path, make: Make, name: str, held_there: bool) -> None:
    if name.endswith("/"):
        (root / name).mkdir()
    else:
        (root / name).write_text("x")
    looking = make()
    assert looking.below().held is held_there
    assert looking.below(patient=False).held is held_there
    assert looking.below().room is None


def test_what_the_lease_made_under_a_hidden_name_holds_nothing(root: Path, make: Make) -> None:
    looking = make()
    looking.own = [(b"top", b"a", b"deep", b"hidden.own")]
    (root / "top/a/deep/hidden.own").write_text("x")
    assert not looking.below().held
    status = (root / "top/a/deep/hidden.own").stat()
    assert looking.asked == [((b"top", b"a", b"deep", b"hidden.own"), status.st_ino, b"hidden.own")]
    (root / "top/a/deep/hidden.other").write_text("x")
    assert looking.below().held


@pytest.mark.usefixtures("settled")
def test_what_is_gone_since_it_was_listed_holds_nothing(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "top/hidden").write_text("x")
    (root / "top/two").hardlink_to(root / "top/f")
    looking = make(Shared())
    real = HeldBelow._list

    def gone(self: HeldBelow, level: Level, left: int) -> tuple[_Listed, int]:
        found = real(self, level, left)
        (root / "top/hidden").unlink(missing_ok=True)
        (root / "top/two").unlink(missing_ok=True)
        return found

    monkeypatch.setattr(HeldBelow, "_list", gone)
    assert not looking.below().held
    assert looking.asked == []


def test_files_that_show_a_hidden_one_are_held(root: Path, make: Make) -> None:
    (root / "top/a/two").hardlink_to(root / "top/f")
    (root / "top/a/link").symlink_to("two")
    shared = Shared((b"top", b"a", b"two"))
    looking = make(shared)
    assert looking.below().held
    assert looking.below(patient=False).held
    shared.names = ()
    shared.asked.clear()
    assert looking.below(patient=False) == Below(room=2, height=2, looks=7 + 2), "a link to such a file is none"
    assert sorted(shared.asked) == [((b"top", b"a", b"two"), False), ((b"top", b"f"), False)]
    assert not make().below().held


@pytest.mark.usefixtures("settled")
def test_only_who_still_has_several_names_is_asked_about(root: Path, make: Make) -> None:
    (root / "top/a/two").hardlink_to(root / "top/f")
    shared = Shared((b"top", b"f"))
    looking = make(shared)
    assert looking.below().held
    (root / "top/a/two").unlink()
    assert not looking.below().held
    (root / "top/f").unlink()
    (root / "top/f").mkdir()
    (root / "top/f/inner").mkdir()
    shared.names = ((b"top", b"f"),)
    assert not looking.below().held


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize(("lonely", "shown"), [("one", "two"), ("two", "one")])
def test_one_that_has_lost_its_other_name_hides_none_of_the_others(
    root: Path, make: Make, lonely: str, shown: str
) -> None:
    for name in ("one", "two"):
        (root / "top" / name).write_text("x")
        (root / "top/b" / name).hardlink_to(root / "top" / name)
    shared = Shared()
    looking = make(shared)
    assert not looking.below().held
    shared.names = ((b"top", shown.encode()),)
    (root / "top/b" / lonely).unlink()
    assert looking.below().held


@pytest.mark.usefixtures("settled")
def test_a_link_that_takes_the_place_of_a_file_is_no_file_with_several_names(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "top/a/two").hardlink_to(root / "top/f")
    shared = Shared((b"top", b"f"))
    looking = make(shared)
    assert looking.below().held
    (root / "three").hardlink_to(root / "top/a/two")
    (root / "top/f").unlink()
    (root / "top/f").symlink_to("a/two")
    status = (root / "top").stat()
    listed = looking.held._listed[status.st_ino]
    looking.held._listed[status.st_ino] = replace(listed, changed=(status.st_mtime_ns, status.st_ctime_ns))
    assert not looking.below().held, "as if the directory had been listed just before"


def test_a_hidden_link_that_leads_nowhere_is_there(root: Path, make: Make) -> None:
    (root / "top/a/hidden").symlink_to("nowhere")
    assert make().below().held
    (root / "top/a/hidden").unlink()
    (root / "top/a/hidden").symlink_to("f")
    looking = make()
    looking.own = [(b"top", b"a", b"hidden")]
    assert not looking.below().held
    assert looking.asked == [((b"top", b"a", b"hidden"), (root / "top/a/hidden").lstat().st_ino, b"hidden")]


@pytest.mark.parametrize(
    ("links", "room"),
    [
        ({"top/l": "x"}, 1),
        ({"top/l": "../x"}, 0),
        ({"top/l": "../../x"}, None),
        ({"top/a/l": "../x"}, 1),
        ({"top/l": "../x", "top/a/l": "x"}, 0),
        ({"top/a/l": "../x", "top/a/deep/l": "../../../x"}, 0),
        ({"top/a/deep/l": "../x", "top/b/l": "../x", "top/a/m": "x"}, 1),
        ({"top/l": "/x", "top/m": "a/../x", "top/n": "../../../../x"}, None),
    ],
)
def test_a_directory_moves_up_until_one_of_its_links_leaves(
    root: Path, make: Make, links: dict[str, str], room: int | None
) -> None:
    for name, target in links.items():
        (root / name).symlink_to(target)
    assert make().below().room == room


@pytest.mark.usefixtures("settled")
def test_what_goes_while_it_is_listed_is_left_out(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "top/b/link").symlink_to("../x")
    inode = (root / "top/b").stat().st_ino
    real = os.scandir

    @contextmanager
    def scandir(fd: int) -> Iterator[list[os.DirEntry[str]]]:
        with real(fd) as entries:
            found = list(entries)
        if os.fstat(fd).st_ino == inode:
            for name in ("link", "f"):
                (root / "top/b" / name).unlink()
        yield found

    monkeypatch.setattr(os, "scandir", scandir)
    assert make().below() == Below(room=None, height=2, looks=7)


@pytest.mark.usefixtures("settled")
def test_what_another_thread_forgets_meanwhile_is_known_all_the_same(make: Make) -> None:
    class Forgetting(OrderedDict[int, _Listed]):
        def get(self, inode: int, default: object = None) -> _Listed | None:  # type: ignore[override]
            return self.pop(inode, None)

    looking = make()
    first = looking.below()
    looking.held._listed = Forgetting(looking.held._listed)
    assert looking.below() == first
    assert looking.held._listed == {}


@pytest.mark.parametrize(
    ("target", "climb"),
    [
        (b"", None),
        (b"/a", None),
        (b"a", 0),
        (b"..", 1),
        (b"../a", 1),
        (b"../../a/b", 2),
        (b"./../a", 1),
        (b"..//../a", 2),
        (b"a/..", None),
        (b"../a/../b", None),
        (b"a/b", 0),
    ],
)
def test_how_far_a_link_climbs(target: bytes, climb: int | None) -> None:
    assert _climb(target) == climb


def test_what_nobody_can_look_into_may_hold_anything(root: Path, make: Make) -> None:
    deep = root / "top/a/deep"
    for _ in range(MAX_DEPTH):
        deep = deep / "d"
    current = os.open(root / "top/a/deep", os.O_RDONLY)
    for _ in range(MAX_DEPTH):
        os.mkdir("d", dir_fd=current)
        below = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    assert make().below().held


def test_a_shut_directory_at_the_end_holds_too(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def shut(path: object, flags: int, *more: object, **named: object) -> int:
        if path == b"b":
            raise PermissionError(errno.EACCES, "")
        return real(path, flags, *more, **named)  # type: ignore[arg-type]

    for name in ("top/a/deep/f", "top/a/f", "top/b/f"):
        (root / name).unlink()
    (root / "top/a/deep").rmdir()
    (root / "top/a").rmdir()
    monkeypatch.setattr(os, "open", shut)
    assert make().below().held


def test_what_is_no_directory_is_not_looked_into(root: Path, make: Make) -> None:
    (root / "link").symlink_to("top")
    for name, code in (("top/f", errno.ENOENT), ("link", errno.ENOTDIR), ("none", errno.ENOENT)):
        with pytest.raises(OSError, match=os.strerror(code)):
            make().below(name.rpartition("/")[0] + "none" if "/" in name else name)


# How much is looked at


@pytest.mark.usefixtures("settled")
def test_a_directory_is_listed_again_only_where_it_has_changed(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = make()
    listed: list[int] = []
    real = os.scandir

    def scandir(fd: int | str) -> object:
        if isinstance(fd, int):
            listed.append(os.fstat(fd).st_ino)
        return real(fd)

    monkeypatch.setattr(os, "scandir", scandir)
    first = looking.below()
    assert len(listed) == 4
    assert looking.known() == {"top", "top/a", "top/a/deep", "top/b"}
    listed.clear()
    assert looking.below() == first
    assert listed == []
    (root / "top/a/new").write_text("x")
    assert looking.below() == first
    assert listed == [(root / "top/a").stat().st_ino]
    listed.clear()
    os.utime(root / "top/b", ns=(1, 1))
    looking.below()
    assert listed == [(root / "top/b").stat().st_ino]


@pytest.mark.usefixtures("settled")
def test_what_a_move_of_the_leases_changes_is_known(root: Path, make: Make) -> None:
    looking = make()
    looking.below()
    before = (root / "top").stat()
    os.chmod(root / "top", 0o711)
    after = (root / "top").stat()
    assert before.st_ctime_ns != after.st_ctime_ns
    inode = before.st_ino
    looking.held.followed(before, after)
    assert looking.held._listed[inode].changed == (after.st_mtime_ns, after.st_ctime_ns)
    assert looking.held._listed[inode].directories
    looking.held.followed(before, before)  # not as it is known: somebody else has changed it
    assert looking.held._listed[inode].changed == (after.st_mtime_ns, after.st_ctime_ns)
    os.utime(root / "top", ns=(1, 1))
    touched = (root / "top").stat()
    looking.held.followed(after, touched)  # its entries may be others
    assert looking.held._listed[inode].changed == (after.st_mtime_ns, after.st_ctime_ns)
    other = (root / "top/f").stat()
    looking.held.followed(other, other)
    assert other.st_ino not in looking.held._listed
    assert not looking.held._keeping.locked()


@pytest.mark.usefixtures("settled")
@pytest.mark.parametrize("entries", [8, 9, 10])
def test_no_more_is_looked_at_than_may_be(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch, entries: int
) -> None:
    """Nine entries the first time: four directories, each with what is in it, but the top is in none."""
    monkeypatch.setattr(held, "MAX_HELD_ENTRIES", entries)
    looking = make()
    many = 4 + 3 + 2 + 1 + 1
    assert looking.below().too_large is (many > entries)
    assert many == 11
    monkeypatch.setattr(held, "MAX_HELD_ENTRIES", many)
    looking = make()
    first = looking.below()
    assert not first.too_large
    for enough, seen in ((first.looks, False), (first.looks - 1, True)):
        monkeypatch.setattr(held, "MAX_HELD_ENTRIES", enough)
        assert looking.below().too_large is seen


@pytest.mark.usefixtures("settled")
def test_what_is_kept_is_bounded_and_the_oldest_goes(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = make()
    looking.below()
    weights = {name: 400 + sum(60 + len(one) for one in names) for name, names in LISTED.items()}
    assert looking.held._bytes == sum(weights.values())
    for path in (root / "top/a", root / "top/b"):  # the same once more, and not twice
        os.utime(path)
    looking.below()
    assert looking.held._bytes == sum(weights.values())
    (root / "top/a/x").mkdir()
    looking.below()
    weights["top/a"] += 61
    weights["top/a/x"] = 400
    assert looking.held._bytes == sum(weights.values())
    monkeypatch.setattr(held, "MAX_KEPT_BYTES", looking.held._bytes)
    (root / "top/b/y").mkdir()
    looking.below()
    assert looking.held._bytes <= held.MAX_KEPT_BYTES
    kept = looking.known()
    assert looking.held._bytes == sum(one.weight for one in looking.held._listed.values())
    assert kept < {*weights, "top/b/y"}
    assert "top/b/y" in kept
    monkeypatch.setattr(held, "MAX_KEPT_BYTES", 0)
    (root / "top/b/z").mkdir()
    looking.below()
    assert (looking.known(), looking.held._bytes) == (set(), 0)


LISTED: dict[str, tuple[str, ...]] = {"top": ("a", "b"), "top/a": ("deep",), "top/a/deep": (), "top/b": ()}


@pytest.mark.usefixtures("settled")
def test_what_was_needed_last_goes_last(root: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = make()
    for name in ("top", "other"):
        (root / name).mkdir(exist_ok=True)
        looking.below(name)
    looking.below("top")
    monkeypatch.setattr(held, "MAX_KEPT_BYTES", looking.held._bytes)
    (root / "third").mkdir()
    looking.below("third")
    assert looking.known() == {"top", "top/a", "top/a/deep", "top/b", "third"}


@pytest.mark.parametrize(
    ("listed", "looks", "weight"),
    [
        (_Listed((1, 1), (), (), (), ()), 1, 400),
        (_Listed((1, 1), (b"abc", b"d"), (b"ef",), (b"g", b"h", b"i"), (1, 2)), 6, 400 + 9 + 6 * 60),
    ],
)
def test_what_a_directory_weighs_and_costs(listed: _Listed, looks: int, weight: int) -> None:
    assert (listed.looks, listed.weight) == (looks, weight)


# What is found out in a thread


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "QUICK_ENTRIES", 0)


def asked(looking: Looking, name: str = "top") -> NotKnownYet:
    with pytest.raises(NotKnownYet) as caught:
        looking.below(name, patient=False)
    return caught.value


@pytest.mark.usefixtures("slow")
def test_an_answer_is_taken_once(make: Make) -> None:
    looking = make()
    asked(looking).learn()
    assert looking.below(patient=False) == make().below()
    asked(looking).drop()


@pytest.mark.usefixtures("slow")
def test_what_is_too_large_is_an_answer_too(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "MAX_HELD_ENTRIES", 3)
    looking = make()
    asked(looking).learn()
    assert looking.below(patient=False) == Below(too_large=True)


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(("seconds", "holds"), [(held.ANSWER_SECONDS, True), (held.ANSWER_SECONDS + 0.01, False)])
def test_an_answer_waits_for_a_while(make: Make, monkeypatch: pytest.MonkeyPatch, seconds: float, holds: bool) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    looking = make()
    asked(looking).learn()
    now += seconds
    if holds:
        looking.below(patient=False)
    else:
        asked(looking).drop()


@pytest.mark.usefixtures("settled")
def test_an_answer_counts_only_where_looking_again_takes_as_long(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can look again at once does so, and sees what has changed meanwhile."""
    looks = make().below().looks
    for quick, seen in ((looks, True), (looks - 1, False)):
        looking = make()
        monkeypatch.setattr(held, "QUICK_ENTRIES", 0)
        asked(looking).learn()
        (root / "top/a/deep/hidden").write_text("x")
        monkeypatch.setattr(held, "QUICK_ENTRIES", quick)
        if seen:
            with pytest.raises(NotKnownYet) as caught:
                looking.below(patient=False)
            caught.value.drop()
        else:
            assert not looking.below(patient=False).held
        (root / "top/a/deep/hidden").unlink()


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("path", "forgets"),
    [
        ((b"top",), True),
        ((b"top", b"a", b"new"), True),
        ((), True),
        ((b"other",), False),
        ((b"top2", b"a"), False),
    ],
)
def test_a_change_of_the_leases_makes_an_answer_old(make: Make, path: tuple[bytes, ...], forgets: bool) -> None:
    looking = make()
    asked(looking).learn()
    looking.held.changed(path)
    if forgets:
        asked(looking).drop()
    else:
        looking.below(patient=False)


@pytest.mark.usefixtures("slow")
def test_few_answers_wait_and_the_first_goes_first(root: Path, make: Make) -> None:
    looking = make()
    names = [f"d{number}" for number in range(held.MAX_ANSWERS + 1)]
    unknown = []
    for name in names:
        (root / name).mkdir()
        (root / name / "f").write_text("x")
        unknown.append(asked(looking, name))
    for one in unknown:
        one.learn()
    for name in names[1:]:
        assert looking.below(name, patient=False) == Below(looks=1)
    asked(looking, names[0]).drop()


@pytest.mark.usefixtures("slow")
def test_who_asks_twice_before_the_answer_gets_the_first(make: Make) -> None:
    looking = make()
    first, second = asked(looking), asked(looking)
    first.learn()
    second.drop()
    looking.below(patient=False)


def test_what_is_asked_of_a_shared_file_is_asked_for_once_more(root: Path, make: Make) -> None:
    class Unknown(Shared):
        dropped = 0

        def shows_hidden(self, status: os.stat_result, parts: Sequence[bytes], *, patient: bool) -> bool:
            if patient:
                return super().shows_hidden(status, parts, patient=patient)
            raise NotKnownYet(lambda: None, self.drop)

        def drop(self) -> None:
            self.dropped += 1

    (root / "top/a/two").hardlink_to(root / "top/f")
    shared = Unknown()
    looking = make(shared)
    with pytest.raises(NotKnownYet):
        looking.below(patient=False)
    assert shared.dropped == 0


def test_an_answer_that_is_there_stands_for_a_shared_file_that_is_not_known(
    root: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "top/a/two").hardlink_to(root / "top/f")
    dropped: list[int] = []

    class Unknown(Shared):
        def shows_hidden(self, status: os.stat_result, parts: Sequence[bytes], *, patient: bool) -> bool:
            if patient:
                return False
            raise NotKnownYet(lambda: None, lambda: dropped.append(1))

    looking = make(Unknown())
    found = looking.below()
    monkeypatch.setattr(held, "QUICK_ENTRIES", 0)
    asked(looking).learn()
    monkeypatch.setattr(held, "QUICK_ENTRIES", found.looks - 1)
    monkeypatch.setattr(HeldBelow, "_list", lambda self, level, left: (_Listed((0, 0), (), (), (b"two", b"f"), ()), 0))
    (root / "top/two").hardlink_to(root / "top/f")
    assert looking.below(patient=False) == found
    assert dropped == [1]


# What may be moved


@pytest.mark.parametrize(
    ("below", "old", "new", "code"),
    [
        (Below(), 1, 1, None),
        (Below(held=True), 1, 1, errno.EACCES),
        (Below(held=True, too_large=True), 1, 1, errno.EACCES),
        (Below(too_large=True), 1, 1, errno.EXDEV),
        (Below(room=0), 2, 1, errno.EXDEV),
        (Below(room=1), 2, 1, None),
        (Below(room=0), 2, 2, None),
        (Below(room=1), 3, 1, errno.EXDEV),
        (Below(height=MAX_DEPTH - 2), 1, 2, None),
        (Below(height=MAX_DEPTH - 1), 1, 2, errno.ENAMETOOLONG),
        (Below(height=MAX_DEPTH), 2, 2, None),
        (Below(height=MAX_DEPTH), 3, 2, None),
    ],
)
def test_what_lies_below_decides(below: Below, old: int, new: int, code: int | None) -> None:
    def check() -> None:
        check_below(below, [b"o"] * old, [b"n"] * new)

    if code is None:
        check()
        return
    with pytest.raises(OSError, match=os.strerror(code)):
        check()

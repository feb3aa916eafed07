"""Of a large file that shares no blocks, only what is overwritten is kept, and that gives the old content back."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from sublet.workspace.audit import snapshot
from sublet.workspace.changes import befores
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.kept import blocks as block_file
from sublet.workspace.kept import contents, keeper
from sublet.workspace.kept.blocks import ALL, BLOCK_BYTES, Mark
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.log import load
from sublet.workspace.kept.signature import Signature
from support.kept import LiveLease, picture, settled, tick

MEBIBYTE = 1 << 20
LARGE = 8 * MEBIBYTE
BOUND = 16 * MEBIBYTE
"""Where a test says so, all that is kept and all that snapshots read, which is a gibibyte otherwise."""
SEEDS = int(os.environ.get("SUBLET_TEST_SEEDS", "12"))


@pytest.fixture(autouse=True)
def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file system shares blocks here, whatever the machine has."""
    monkeypatch.setattr(contents, "share_content", lambda *_: False)


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> KeptBudget:
    """Lower both bounds, so that a file beyond them is quickly read; return what may be kept."""
    for module in (snapshot, befores):
        monkeypatch.setattr(module, "MAX_READ_BYTES", BOUND)
    return KeptBudget(limit=BOUND)


@pytest.fixture
def large(root: Path) -> Path:
    """Return a large file in the directory that is lent."""
    path = root / "large"
    path.write_bytes(random.Random(1).randbytes(LARGE))
    return path


def lend(state: Path, root: Path, budget: KeptBudget | None = None, *, patient: bool = True) -> LiveLease:
    settled(root)
    return LiveLease(state, root, budget=budget, patient=patient)


def patch(lease: LiveLease, name: str, content: bytes, offset: int) -> None:
    """Write in the middle of a file."""
    file = lease.fs.open_write(tuple(name.encode().split(b"/")), os.O_WRONLY, 0)
    try:
        file.write(content, offset)
    finally:
        file.close()


def kept_bytes(lease: LiveLease) -> int:
    return sum(path.stat().st_size for path in lease.kept.iterdir() if path.name[0].isdecimal())


def learning(action: Callable[[], None]) -> int:
    """Do what a session does: learn what is not known yet, and try again. Return how often that was."""
    for count in range(8):
        try:
            action()
        except NotKnownYet as unknown:
            unknown.learn()
        else:
            return count
    raise AssertionError("it is never known")


def test_one_byte_of_a_large_file_costs_one_block(state: Path, root: Path, large: Path) -> None:
    before = picture(root)
    lease = lend(state, root)
    patch(lease, "large", b"x", 3 * MEBIBYTE + 5)
    patch(lease, "large", b"y", 3 * MEBIBYTE + 6)
    assert BLOCK_BYTES <= kept_bytes(lease) < 2 * BLOCK_BYTES
    assert lease.budget.bytes == BLOCK_BYTES
    account = lease.end()
    assert (account.others, account.lost, account.after) == ((), (), ())
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


def test_a_file_beyond_the_bound_and_beyond_what_snapshots_read_comes_back(
    state: Path, root: Path, bounded: KeptBudget
) -> None:
    path = root / "huge"
    size, middle = BOUND + MEBIBYTE, BOUND // 2
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(middle)
        file.write(b"in the middle")
    (root / "moved").write_bytes(b"")
    os.truncate(root / "moved", BOUND + 7)
    lease = lend(state, root, bounded)
    patch(lease, "huge", b"IN", middle)
    lease.fs.rename((b"moved",), (b"elsewhere",), replace=True)
    assert kept_bytes(lease) < MEBIBYTE
    assert lease.end().lost == ()
    assert lease.take_back().conflicts == ()
    assert sorted(os.listdir(root)) == ["huge", "moved"]
    assert path.stat().st_size == size
    with path.open("rb") as file:
        file.seek(middle)
        assert file.read(13) == b"in the middle"


@pytest.mark.parametrize("patient", [True, False])
def test_what_a_cut_takes_away_is_kept_and_no_more(state: Path, root: Path, large: Path, patient: bool) -> None:
    before = picture(root)
    lease = lend(state, root, patient=patient)
    learning(lambda: lease.fs.set_attributes((b"large",), size=LARGE - 3 * MEBIBYTE - 1))
    learning(lambda: patch(lease, "large", b"z" * 100, LARGE))  # grows again, with a hole
    assert 3 * MEBIBYTE < lease.budget.bytes <= 3 * MEBIBYTE + BLOCK_BYTES
    lease.end()
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


@pytest.mark.parametrize("last", ["remove", "replace", "rename", "rewrite"])
def test_a_patched_file_that_is_removed_replaced_or_moved_comes_back(
    state: Path, root: Path, large: Path, last: str
) -> None:
    before = picture(root)
    lease = lend(state, root, patient=False)
    lease.write("other", b"o")
    learning(lambda: patch(lease, "large", b"x" * 10, MEBIBYTE))
    match last:
        case "remove":
            assert learning(lambda: lease.fs.remove((b"large",))) > 0
        case "replace":
            learning(lambda: lease.fs.rename((b"other",), (b"large",), replace=True))
        case "rename":
            lease.fs.rename((b"large",), (b"moved",), replace=True)
            learning(lambda: patch(lease, "moved", b"y" * 10, 5 * MEBIBYTE))
        case _:
            learning(lambda: lease.write("large", b"short"))
    lease.end()
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


def test_a_file_with_a_name_outside_is_patched_in_its_copy_and_comes_back(
    state: Path, root: Path, large: Path, tmp_path: Path
) -> None:
    os.link(large, tmp_path / "outside")
    before = picture(root)
    lease = lend(state, root)
    patch(lease, "large", b"x", 7)
    patch(lease, "large", b"x", 4 * MEBIBYTE)
    assert picture(root) != before
    lease.end()
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


@pytest.mark.parametrize("when", ["before", "between", "after", "torn"])
def test_a_process_that_is_killed_leaves_nothing_wrong(state: Path, root: Path, large: Path, when: str) -> None:
    before = picture(root)
    lease = lend(state, root)
    if when == "before":
        status = large.stat()  # killed between keeping and writing
        lease.fs.claim((b"large",), status, span=(0, 10))
        lease.open()
    patch(lease, "large", b"x" * 10, 0)
    if when == "torn":
        with next(lease.kept.glob("*.blocks")).open("ab") as torn:
            torn.write(b"\1\0\0\0\0\0\0\0\0\0\2\0torn, and it looks like a block")
    file = lease.fs.open_write((b"large",), os.O_WRONLY, 0)
    file.write(b"half", 2 * MEBIBYTE)
    lease.open()
    if when != "after":
        patch(lease, "large", b"more", 3 * MEBIBYTE)
        patch(lease, "large", b"more", 2 * MEBIBYTE)
    account = lease.end()
    assert (account.lost, account.after) == ((), ())
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


@pytest.mark.parametrize("how", ["edit", "replace", "shorten"])
@pytest.mark.parametrize("when", ["during", "after"])
def test_where_somebody_else_changed_the_file_too_nothing_is_made_of_both(
    state: Path, root: Path, large: Path, how: str, when: str
) -> None:
    def person() -> None:
        tick(state)
        if how == "edit":
            with large.open("r+b") as file:
                file.seek(6 * MEBIBYTE)
                file.write(b"of a person")
        elif how == "shorten":
            os.truncate(large, 2 * MEBIBYTE)
        else:
            beside = root / "beside"
            beside.write_bytes(b"p" * LARGE)
            beside.rename(large)

    lease = lend(state, root)
    patch(lease, "large", b"x", 0)
    person()
    edited = large.read_bytes()
    if when == "during":
        patch(lease, "large", b"y", 10)
        patch(lease, "large", b"y", BLOCK_BYTES * 3)
    account = lease.end()
    report = lease.take_back()
    if when == "during":
        assert [path for path, _ in account.others] == [b"large"]
        kept = account.others[0][1]
        assert kept is not None
        assert kept.read_bytes() == edited
        assert report.conflicts == ()
    else:
        assert account.after == (b"large",)
        assert [conflict.path for conflict in report.conflicts] == [b"large"]
    assert large.read_bytes() == edited


def test_an_edit_after_the_lease_is_no_part_of_what_comes_back(state: Path, root: Path, large: Path) -> None:
    lease = lend(state, root)
    patch(lease, "large", b"x", 0)
    lease.end()
    with large.open("r+b") as file:
        file.seek(6 * MEBIBYTE)
        file.write(b"of a person")
    edited = large.read_bytes()
    report = lease.take_back()
    assert [(conflict.path, "somebody else" in conflict.detail) for conflict in report.conflicts] == [(b"large", True)]
    assert large.read_bytes() == edited


def test_beyond_the_bound_it_is_told_and_a_lease_that_must_keep_is_refused(
    state: Path, root: Path, large: Path
) -> None:
    lease = lend(state, root, KeptBudget(limit=2 * BLOCK_BYTES))
    for number in range(4):
        patch(lease, "large", b"x", number * MEBIBYTE)
    assert lease.budget.bytes == 0  # what is of no use any more makes room
    assert lease.end().lost == (b"large",)
    assert [conflict.path for conflict in lease.take_back().conflicts] == [b"large"]


def test_a_lease_that_must_keep_all_overwrites_no_more_than_it_can_keep(state: Path, root: Path, large: Path) -> None:
    before = picture(root)
    lease = lend(state, root, KeptBudget(limit=2 * BLOCK_BYTES, must_keep=True))
    patch(lease, "large", b"x", 0)
    patch(lease, "large", b"x", MEBIBYTE)
    for action in (
        partial(patch, lease, "large", b"x", 2 * MEBIBYTE),
        partial(lease.fs.remove, (b"large",)),
        partial(lease.fs.set_attributes, (b"large",), size=1),
    ):
        with pytest.raises(OSError, match="quota"):
            action()
    patch(lease, "large", b"y", 1)
    lease.end()
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


def test_a_file_full_of_holes_costs_little_and_its_records_have_a_bound(state: Path, root: Path) -> None:
    with (root / "holes").open("wb") as file:
        file.truncate(64 * MEBIBYTE)
    with (root / "abyss").open("wb") as file:
        file.truncate(1 << 40)
    lease = lend(state, root)
    lease.fs.set_attributes((b"holes",), size=1)
    assert kept_bytes(lease) < MEBIBYTE
    lease.fs.set_attributes((b"abyss",), size=1)
    assert lease.end().lost == (b"abyss",)
    lease.take_back()
    assert (root / "holes").stat().st_size == 64 * MEBIBYTE


def test_a_large_cut_is_kept_where_nobody_waits_and_may_be_given_up(state: Path, root: Path, large: Path) -> None:
    descriptors = len(os.listdir("/proc/self/fd"))
    lease = lend(state, root, patient=False)
    learning(lambda: patch(lease, "large", b"x", 0))
    for ending in ("drop", "closed"):
        with pytest.raises(NotKnownYet) as unknown:
            lease.fs.set_attributes((b"large",), size=0)
        assert large.stat().st_size == LARGE
        if ending == "drop":
            unknown.value.drop()
        else:
            lease.fs.close()
            unknown.value.learn()
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_blocks_that_another_edit_makes_useless_go_also_while_a_thread_is_at_work(
    state: Path, root: Path, large: Path
) -> None:
    lease = lend(state, root, patient=False)
    learning(lambda: patch(lease, "large", b"x", 0))
    with pytest.raises(NotKnownYet) as unknown:
        lease.fs.set_attributes((b"large",), size=0)
    tick(state)
    large.write_bytes(b"p" * LARGE)
    learning(lambda: patch(lease, "large", b"y", 0))
    unknown.value.learn()
    assert len(list(lease.kept.glob("*.blocks"))) == 1
    assert lease.budget.bytes == BLOCK_BYTES


@pytest.mark.parametrize("damage", ["head", "record", "content", "mark"])
def test_damage_is_told_and_nothing_is_made_of_it(state: Path, root: Path, large: Path, damage: str) -> None:
    lease = lend(state, root)
    patch(lease, "large", b"x", 0)
    patch(lease, "large", b"x", MEBIBYTE)
    lease.end()
    left = large.read_bytes()
    at = {"head": 5, "mark": 24, "record": 60, "content": 500}[damage]
    with next(lease.kept.glob("*.blocks")).open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 0x55]))
    assert [conflict.path for conflict in lease.take_back().conflicts] == [b"large"]
    assert large.read_bytes() == left


def test_an_inode_that_is_used_again_is_another_file(state: Path, root: Path, large: Path) -> None:
    lease = lend(state, root)
    patch(lease, "large", b"x", 0)
    status = large.stat()
    large.unlink()
    lease.keeper.made(status)  # as a file system does that gives the number to the next file
    assert load(lease.kept).states[0].lost


def test_more_files_than_are_watched_are_kept_whole(
    state: Path, root: Path, large: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "MAX_OPEN_BLOCKS", 1)
    (root / "second").write_bytes(b"s" * LARGE)
    before = picture(root)
    lease = lend(state, root)
    patch(lease, "large", b"x", 0)
    patch(lease, "second", b"x", 0)
    assert [state.blocks for state in load(lease.kept).states] == [True, False]
    lease.end()
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


def test_a_full_record_is_not_taken_for_another(tmp_path: Path) -> None:
    """What was cut short is written over, whatever is longer."""
    source = tmp_path / "source"
    source.write_bytes(random.Random(2).randbytes(BLOCK_BYTES) + bytes(BLOCK_BYTES) + b"end")
    directory = os.open(tmp_path, os.O_RDONLY)
    fd = os.open(source, os.O_RDONLY)
    try:
        blocks = block_file.begin(directory, 7, source.stat().st_size, Mark(1, Signature(1, 2, 3)))
        block_file.add(directory, blocks, fd, 0)
        end = blocks.end
        with (tmp_path / "7.blocks").open("ab") as file:
            file.write(b"\xff" * 50_000)
        block_file.add(directory, blocks, fd, 1)
        assert blocks.end - end < 100
        block_file.add(directory, blocks, fd, 2)
        again = block_file.load(directory, 7)
        assert (again.kept, again.end, again.mark) == ({0, 1, 2}, blocks.end, Mark(1, Signature(1, 2, 3)))
        assert again.is_complete
        assert again.missing(ALL) == []
        target = os.open(tmp_path / "target", os.O_RDWR | os.O_CREAT)
        block_file.restore(directory, 7, target)
        os.close(target)
        assert (tmp_path / "target").read_bytes() == source.read_bytes()
    finally:
        os.close(fd)
        os.close(directory)


class Executor:
    """Writes, cuts, extends, moves, removes and replaces large files, as a session does."""

    NAMES = (b"a", b"b", b"c", b"new")

    def __init__(self, lease: LiveLease, chance: random.Random) -> None:
        self.lease = lease
        self.chance = chance

    def act(self) -> None:
        parts = (self.chance.choice(self.NAMES),)
        action = self.chance.choice(
            [self.patch, self.patch, self.patch, self.append, self.cut, self.move, self.remove, self.rewrite, self.mode]
        )
        with suppress(OSError):
            learning(lambda: action(parts))

    def patch(self, parts: tuple[bytes, ...]) -> None:
        self._write(
            parts, os.O_WRONLY, self.chance.randbytes(self.chance.randint(1, 900)), self.chance.randint(0, 9000)
        )

    def append(self, parts: tuple[bytes, ...]) -> None:
        self._write(parts, os.O_WRONLY | os.O_APPEND, b"appended" * self.chance.randint(1, 200), 0)

    def rewrite(self, parts: tuple[bytes, ...]) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        self._write(parts, flags, self.chance.randbytes(self.chance.choice([10, 5000])), 0)

    def _write(self, parts: tuple[bytes, ...], flags: int, content: bytes, offset: int) -> None:
        file = self.lease.fs.open_write(parts, flags, 0o644)
        try:
            file.write(content, offset)
        finally:
            file.close()

    def cut(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.set_attributes(parts, size=self.chance.randint(0, 12_000))

    def move(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.rename(parts, (self.chance.choice(self.NAMES),), replace=True)

    def remove(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.remove(parts)

    def mode(self, parts: tuple[bytes, ...]) -> None:
        self.lease.fs.set_attributes(parts, mode=self.chance.choice([0o600, 0o755]))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make files of some kilobytes large: they have many blocks, and snapshots keep only their digests."""
    monkeypatch.setattr(block_file, "BLOCK_BYTES", 512)
    monkeypatch.setattr(contents, "BLOCK_BYTES", 512)
    monkeypatch.setattr(contents, "QUICK_BYTES", 1500)
    monkeypatch.setattr(keeper, "QUICK_BYTES", 1500)
    for module in (snapshot, keeper, befores):
        monkeypatch.setattr(module, "MAX_STORED_BYTES", 100)


def make_files(root: Path, chance: random.Random) -> None:
    for name in ("a", "b", "c"):
        (root / name).write_bytes(chance.randbytes(chance.randint(1_600, 8_000)))
        (root / name).chmod(chance.choice([0o644, 0o600]))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_whatever_an_executor_does_the_old_bytes_come_back(state: Path, root: Path, seed: int) -> None:
    chance = random.Random(seed)
    make_files(root, chance)
    before = picture(root)
    settled(root)
    lease = LiveLease(state, root, patient=seed % 2 == 0)
    executor = Executor(lease, chance)
    for number in range(30):
        if seed % 3 == 0 and number % 10 == 9:
            lease.open()  # as after a kill: nothing of the first process was tidied up
        executor.act()
    account = lease.end()
    assert (account.others, account.after, account.lost) == ((), (), ())
    assert lease.take_back().conflicts == ()
    assert picture(root) == before


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_beside_a_person_no_file_becomes_a_mixture(state: Path, root: Path, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    make_files(root, chance)
    settled(root)
    lease = LiveLease(state, root, patient=seed % 2 == 0)
    executor = Executor(lease, chance)
    good = {path.read_bytes() for path in root.iterdir()}
    for _ in range(25):
        tick(tmp_path)
        if chance.random() < 0.7:
            executor.act()
            continue
        path = root / chance.choice(["a", "b", "c"])
        if path.exists() and chance.random() < 0.5:
            with path.open("r+b") as file:
                file.seek(chance.randint(0, 4_000))
                file.write(b"person")
        else:
            path.write_bytes(chance.randbytes(chance.randint(1_600, 6_000)))
        good.add(path.read_bytes())
    tick(tmp_path)
    lease.end()
    report = lease.take_back()
    told = {conflict.path for conflict in report.conflicts}
    for path in root.iterdir():
        assert path.name.encode() in told or path.read_bytes() in good


@pytest.mark.parametrize("then", ["nothing", "changed", "link"])
def test_a_huge_file_that_was_only_moved_comes_back_unless_somebody_else_changed_it(
    state: Path, root: Path, bounded: KeptBudget, tmp_path: Path, then: str
) -> None:
    size = BOUND + 7
    (root / "d").mkdir()
    with (root / "d/huge").open("wb") as file:
        file.write(b"begins")
        file.truncate(size)
    lease = lend(state, root, bounded)
    lease.fs.rename((b"d", b"huge"), (b"huge",), replace=True)
    lease.end()
    tick(root)
    moved, back = root / "huge", root / "d/huge"
    match then:
        case "changed":
            with moved.open("r+b") as file:
                file.write(b"others")
        case "link":
            moved.rename(tmp_path / "elsewhere")
            moved.symlink_to(tmp_path / "elsewhere")
    conflicts = lease.take_back().conflicts
    if then == "nothing":
        assert conflicts == ()
        assert not moved.exists()
        assert back.stat().st_size == size
        with back.open("rb") as file:
            assert file.read(6) == b"begins"
    else:
        assert conflicts
        assert not back.exists()
        assert moved.exists()

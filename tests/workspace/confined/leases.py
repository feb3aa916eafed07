"""A directory that is lent, with all that it tells, and what tests ask of it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from sublet.workspace.confined.fs import ConfinedFs
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.export import ViewRules
from sublet.workspace.kept.budget import KeptBudget
from sublet.workspace.kept.keeper import CLOCK_NS, OverwriteKeeper
from sublet.workspace.kept.log import Overwritten, begin, load, open_place
from sublet.workspace.own_names import OwnNames
from sublet.workspace.quota import Quota
from sublet.workspace.view.rules import DEFAULT_CARRIED, DEFAULT_HIDDEN, DEFAULT_LOCKED, Rules
from support.kept import tick

ROOM = 1 << 30
RULES = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, (), carried=DEFAULT_CARRIED, git="rw")
ONE, TWO = b"1" * 40 + b"\n", b"2" * 40 + b"\n"
"""References, as a repository has them."""
ONLY_ADDS = Rules(DEFAULT_HIDDEN, DEFAULT_LOCKED, (), only_adds=True, git="rw")


def parts(path: str) -> tuple[bytes, ...]:
    return tuple(path.encode().split(b"/"))


class Keeping:
    """What keeps the states before, and where.

    Args:
        place: a directory that is not there yet.
        root: what is lent, all of which was there before the lease.
        limit: bytes that may be kept, and the lease must keep all; by default there is room.
        snapshot: whether a snapshot holds what was there.
    """

    def __init__(self, place: Path, root: Path, *, limit: int | None = None, snapshot: bool = False) -> None:
        statuses = [path.lstat() for path in root.rglob("*")]
        inodes = {status.st_ino for status in statuses} if snapshot else set()
        begin(place, max(status.st_ctime_ns for status in statuses) + CLOCK_NS + 1, inodes)
        budget = KeptBudget() if limit is None else KeptBudget(limit, must_keep=True)
        self.place = place
        self.keeper = OverwriteKeeper(open_place(place), RULES, budget)


class Lease:
    """A directory that is lent, with all that it tells."""

    def __init__(
        self, root: Path, rules: ViewRules | None = None, *, keeper: Keeping | None = None, **more: object
    ) -> None:
        self.root = root
        self.told: list[str] = []
        self.denied: list[tuple[str, str]] = []
        self.marks: list[Sequence[bytes]] = []
        self.quota = Quota(ROOM, ROOM)
        self.own = OwnNames()
        self.keeper = keeper
        self.fs = WritableFs(
            ConfinedFs.open_root(root),
            rules or RULES,
            self.quota,
            lambda path: self.told.append(b"/".join(path).decode()),
            own=self.own,
            on_refused=lambda path, reason: self.denied.append((b"/".join(path).decode(), reason)),
            on_marks=self.marks.append,
            keeper=keeper.keeper if keeper is not None else None,
            **more,  # type: ignore[arg-type]
        )

    def put(self, path: str, content: bytes = b"x") -> None:
        file = self.fs.open_write(parts(path), os.O_WRONLY | os.O_CREAT, 0o644)
        try:
            file.write(content, 0)
        finally:
            file.close()
        self.told.clear()

    def rename(self, old: str, new: str, *, replace: bool = True) -> None:
        self.fs.rename(parts(old), parts(new), replace=replace)

    def link(self, old: str, new: str) -> None:
        self.fs.link(parts(old), parts(new))

    @property
    def used(self) -> tuple[int, int]:
        return self.quota.bytes, self.quota.files

    def own_paths(self) -> list[str]:
        return sorted(path.decode() for path in self.own.paths())

    def kept(self) -> list[tuple[str, str, bool]]:
        """Return what is kept of states before: the name, whose it was, and whether it is lost."""
        return [(state.path.decode(), state.by, state.lost) for state in self._overwritten().states]

    def kept_directories(self) -> list[tuple[str, str, int]]:
        """Return what is kept of directories: the name, whose mode it was, and the mode."""
        return [(one.path.decode(), one.by, one.permissions) for one in self._overwritten().directories]

    def _overwritten(self) -> Overwritten:
        assert self.keeper is not None
        return load(self.keeper.place)


def code_of(action: Callable[[], object]) -> int | None:
    try:
        action()
    except OSError as exc:
        return exc.errno
    return None


def refused(lease: Lease, action: Callable[[], object], path: str, reason: str, code: int = errno.EACCES) -> None:
    """Make sure that something is refused and told, and changes nothing."""
    lease.denied.clear()
    lease.told.clear()
    before, used = picture(lease.root), lease.used
    assert code_of(action) == code
    assert lease.denied == [(path, reason)]
    assert lease.told == []
    assert (picture(lease.root), lease.used) == (before, used)


def picture(root: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        content: object = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(root))] = (status.st_mode, status.st_ino, status.st_nlink, content)
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


Lend = Callable[..., Lease]


def touch(lease: Lease, path: str) -> Callable[[], None]:
    """Return what sets the time of a file."""
    return partial(lease.fs.set_modified, parts(path), 5)


def write(lease: Lease, path: str) -> None:
    """Write at the begin of a file that is there."""
    file = lease.fs.open_write(parts(path), os.O_WRONLY, 0)
    try:
        file.write(b"theirs", 0)
    finally:
        file.close()


def learned(action: Callable[[], object]) -> int:
    """Do something, and what has to be found out before; return how often that was."""
    for count in range(9):
        try:
            action()
        except NotKnownYet as unknown:
            unknown.learn()
        else:
            return count
    raise AssertionError("what is to be found out changes all the time")


def person_edits(root: Path, name: str, content: bytes) -> None:
    """Write a file as a person does, at a time that no other change has."""
    tick(root.parent)
    (root / name).write_bytes(content)
    tick(root.parent)

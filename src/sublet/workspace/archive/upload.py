"""Takes the changes of one transfer of the archive transport, on the delegator's side (DESIGN 4.6).

Rules: all that is to be changed is announced first and held to the quota before any content comes; nothing is written
once the transfer was ended. All of it blocks on the disk: each step is called in a thread, one at a time, and a
transfer has descriptors of its own, so that a lease may end while a step is under way.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from sublet.protocol.text import clean_name
from sublet.workspace.archive.tar_format import Entry, Kind, MalformedTar, NameDigests, Parts, TarLimits
from sublet.workspace.archive.tar_reader import PlannedTar
from sublet.workspace.archive.tree_unpack import TreeWriter
from sublet.workspace.archive.wire import (
    MAX_REASON_CHARS,
    MAX_REFUSED,
    MalformedFrame,
    Planned,
    Refused,
    Report,
    read_plan,
)
from sublet.workspace.byte_budget import ByteBudget
from sublet.workspace.confined.write import WritableFs
from sublet.workspace.quota import Quota, TreeSize
from sublet.workspace.viewpath import refused

MAX_BYTES: Final = 1 << 50


MAX_PLAN_BYTES: Final = 32 << 20
"""Bytes that the plan of one transfer takes here: some 170,000 changes."""


_CHANGE_BYTES: Final = 192
"""What a planned change takes, about: only a digest of its name is kept."""


_NAME_BYTES: Final = 200
"""What a name takes besides itself, about, that is kept: of a removal, and of a directory."""


_KINDS: Final[tuple[Kind, ...]] = ("file", "directory", "symlink", "hardlink")


class TransferOver(Exception):
    """The lease has ended meanwhile."""


@dataclass(slots=True)
class _Growth:
    """What the planned changes add, net, and the largest file that is new or grows."""

    bytes: int = 0
    files: int = 0
    largest: int = 0


class _Plan:
    """What was announced, and what it adds to the tree as it is now.

    Args:
        look: returns the status of what is at a name now.
    """

    def __init__(self, look: Callable[[Parts], os.stat_result | None]) -> None:
        self._look = look
        self._digests = NameDigests()
        self._changes: dict[bytes, int] = {}
        self._removed: set[bytes] = set()
        self._kept = ByteBudget("the plan of a transfer", MAX_PLAN_BYTES)
        self.removals: list[bytes] = []
        self.count = self.content = self.largest = 0
        self.growth = _Growth()

    @property
    def is_done(self) -> bool:
        """Whether all changes that are no removals have come."""
        return not self._changes

    def add(self, planned: Planned) -> None:
        """Take one change.

        Raises:
            MalformedFrame: a name comes twice, or there is too much.
        """
        digest = self._digests.of(planned.parts)
        if digest in self._changes:
            raise MalformedFrame("a change is there twice")
        name = b"/".join(planned.parts)
        kept = len(name) + _NAME_BYTES if planned.kind in ("deleted", "directory") else 0
        if not self._kept.take(_CHANGE_BYTES + kept):
            raise MalformedFrame("too many changes, or too long names")
        there = None if digest in self._removed else self._look(planned.parts)
        growth, before = self.growth, 0 if there is None else _content(there)
        if planned.kind == "deleted":
            if digest not in self._removed and there is not None:
                growth.files -= 1
                growth.bytes -= before
            self._removed.add(digest)
            self.removals.append(name)
            return
        self._changes[digest] = _KINDS.index(planned.kind) | planned.size << 2
        self.count += 1
        self.content += planned.size
        self.largest = max(self.largest, planned.size)
        growth.bytes += planned.size - before
        growth.files += there is None
        if there is None or planned.size > before:
            growth.largest = max(growth.largest, planned.size)
        if self.content > MAX_BYTES:
            raise MalformedFrame("too many changes")

    def take(self, entry: Entry) -> bool:
        """Tell whether an entry is exactly one of the plan that has not come yet; it is none from now on."""
        digest = self._digests.of(entry.parts)
        if self._changes.get(digest) != _KINDS.index(entry.kind) | entry.size << 2:
            return False
        del self._changes[digest]
        return True


class Upload:
    """Changes that come back: planned, approved as a whole, then written.

    Args:
        trees: the directories that may be changed, by name; closed with it.
        quota: what the lease may add, which all its transfers share.
        is_live: tells whether the lease still holds; asked before everything that is written.
        keeps_modes: as for ``TreeWriter``.
    """

    def __init__(
        self, trees: Mapping[bytes, WritableFs], quota: Quota, is_live: Callable[[], bool], *, keeps_modes: bool = False
    ) -> None:
        self._trees = dict(trees)
        self._quota = quota
        self._is_live = is_live
        self._lock = threading.Lock()
        self._halted = False
        self._plan = _Plan(self._there)
        self._refused: list[Refused] = []
        self._refused_count = 0
        self._writer = TreeWriter(self._locate, self._note_refused, digesting=False, keeps_modes=keeps_modes)
        self._reader = PlannedTar(self)

    def plan(self, payload: bytes) -> None:
        """Take a part of the plan.

        Raises:
            MalformedFrame: it can't be read, names what is no part of the view, names something twice, or too much.
            TransferOver: the lease has ended.
        """
        for planned in read_plan(payload):
            if len(planned.parts) < 2:
                raise MalformedFrame("a change of the view itself")
            self._go_on()
            self._plan.add(planned)

    def approve(self) -> None:
        """Refuse the plan where it passes the lease's quota, before any of it is on the disk; then remove what is gone.

        Raises:
            OSError: ``EDQUOT``.
            TransferOver: the lease has ended.
        """
        plan, growth = self._plan, self._plan.growth
        self._quota.check(TreeSize(growth.bytes, growth.files), growth.largest)
        for name in plan.removals:
            with self._alive():
                self._writer.remove(tuple(name.split(b"/")))
        self._reader.approve(TarLimits(plan.count, plan.content, plan.largest))

    def receive(self, data: bytes) -> None:
        """Take a piece of the tar stream.

        Raises:
            MalformedTar: it is none, or not what was planned.
            OSError: a disk that is full or broken, or ``EDQUOT``.
            TransferOver: the lease has ended.
        """
        self._reader.feed(data)

    def finish(self) -> Report:
        """Complete the changes and return what became of them.

        Raises:
            MalformedTar: something of the plan is missing.
            TransferOver: the lease has ended.
        """
        self._reader.finish()
        if not self._plan.is_done:
            raise MalformedTar("changes that were planned did not come")
        finishing = self._writer.finishing()
        while True:
            with self._alive():  # for each directory, since whoever ends the lease waits for what is under way
                if next(finishing, self) is self:
                    break
        return Report(refused=self._refused, refused_count=self._refused_count)

    def halt(self) -> None:
        """Write nothing more, from within this call on, whatever step is under way. Idempotent, from any thread."""
        with self._lock:
            self._halted = True

    def close(self) -> None:
        """Close everything."""
        self._writer.close()
        for tree in self._trees.values():
            tree.close()
        self._trees = {}

    # tar_format.TarSink

    def begin(self, entry: Entry) -> None:
        """Take an entry that is exactly one of the plan."""
        if not self._plan.take(entry):
            raise MalformedTar("an entry is not what was planned")
        with self._alive():
            self._writer.begin(entry)

    def data(self, piece: memoryview) -> None:
        """Write a piece of the entry."""
        with self._alive():
            self._writer.data(piece)

    def end(self) -> None:
        """Complete the entry."""
        with self._alive():
            self._writer.end()

    @contextmanager
    def _alive(self) -> Iterator[None]:
        """Do one thing in the tree while the lease holds; its end waits for that, and lets nothing follow."""
        with self._lock:
            self._go_on()
            yield

    def _go_on(self) -> None:
        if self._halted or not self._is_live():
            raise TransferOver

    def _locate(self, parts: Parts) -> tuple[WritableFs, Parts]:
        tree = self._trees.get(parts[0])
        if tree is None:
            raise refused(errno.EACCES)
        return tree, parts[1:]

    def _there(self, parts: Parts) -> os.stat_result | None:
        try:
            fs, inner = self._locate(parts)
            return fs.lstat(inner)
        except OSError:
            return None

    def _note_refused(self, parts: Parts, reason: str) -> None:
        self._refused_count += 1
        if len(self._refused) < MAX_REFUSED:
            self._refused.append(Refused(name=clean_name(b"/".join(parts[1:])), reason=reason[:MAX_REASON_CHARS]))


def _content(there: os.stat_result) -> int:
    return there.st_size if stat.S_ISREG(there.st_mode) and there.st_nlink == 1 else 0

"""What a directory holds that is moved by nobody: hidden and locked names of the delegator's, at any depth below it.

A directory is listed once and again only when it has changed: what is kept of it are the few names that some rule may
be about, its subdirectories, and how far its links climb. So a directory that is renamed again and again costs a look
at the status of each directory in it, and none at its files.

Weak: where a directory holds more than ``QUICK_ENTRIES`` directories, what somebody else than the lease changes in it
while it is looked through, and until it is moved, can be missed.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from sublet.workspace.confined.bounds import MAX_DEPTH
from sublet.workspace.confined.descend import Level, descend
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.confined.shared import CLOCK_NS, OwnHidden, SharedFiles
from sublet.workspace.export import ViewRules
from sublet.workspace.viewpath import Parts, refused

MAX_HELD_ENTRIES: Final = 500_000
"""Entries looked at below one directory; one with more has to be copied by the client."""
MAX_KEPT_BYTES: Final = 4 << 20
"""What is kept of all directories that were listed; beyond it, those that were not needed for longest are forgotten."""
QUICK_ENTRIES: Final = 256
"""Entries that are looked at where everybody waits; for more, that is done in a thread."""
MAX_ANSWERS: Final = 16
"""Answers that wait for the operation that they are found for."""
ANSWER_SECONDS: Final = 2.0
"""How long an answer waits: nobody tells of what others than the lease change meanwhile."""
_RECORD_BYTES: Final = 400
_NAME_BYTES: Final = 60


@dataclass(frozen=True, slots=True)
class Below:
    """What lies below a directory.

    ``room`` is how many levels it may move up before one of its links leaves, ``height`` how many levels lie in it, and
    ``looks`` how many entries have to be looked at to tell whether all of it still holds.
    """

    held: bool = False
    too_large: bool = False
    room: int | None = None
    height: int = 0
    looks: int = MAX_HELD_ENTRIES


@dataclass(frozen=True, slots=True)
class _Listed:
    """One directory as it was when it was listed."""

    changed: tuple[int, int]
    directories: tuple[bytes, ...]
    notable: tuple[bytes, ...]
    shared: tuple[bytes, ...]
    climbs: tuple[int, ...]

    @property
    def looks(self) -> int:
        """How many entries have to be looked at while it has not changed."""
        return 1 + len(self.directories) + len(self.shared)

    @property
    def weight(self) -> int:
        names = (*self.directories, *self.notable, *self.shared)
        return _RECORD_BYTES + sum(map(len, names)) + _NAME_BYTES * len(names)


@dataclass(slots=True)
class _Answer:
    """What lies below a directory once that was found out, and when (by ``time.monotonic``)."""

    below: Below | None = None
    found: float = 0.0


class _Enough(Exception):
    """More than may be looked at."""


class HeldBelow:
    """What is known of the directories of one lent directory.

    Args:
        rules: which names are hidden and locked.
        own: tells of a hidden name whether the lease made what is there.
        shared: which files have a hidden name beside the one that is seen.
    """

    def __init__(self, rules: ViewRules, own: OwnHidden, shared: SharedFiles | None) -> None:
        self._rules = rules
        self._own = own
        self._shared = shared
        self._listed: OrderedDict[int, _Listed] = OrderedDict()
        self._bytes = 0
        self._keeping = threading.Lock()
        self._answers: OrderedDict[tuple[bytes, ...], _Answer] = OrderedDict()

    def below(self, directory: int, parts: Parts, *, patient: bool) -> Below:
        """Return what lies below the directory ``parts``, a name in the open ``directory``.

        Raises:
            NotKnownYet: that takes long to find out.
            OSError: it is no directory, or can't be read.
        """
        path = tuple(parts)
        top = os.open(path[-1], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            # An answer is taken only where looking whether it still holds would take as long as finding it out.
            answer = self._found(path)
            try:
                return self._look(os.dup(top), path, MAX_HELD_ENTRIES if patient else QUICK_ENTRIES, patient=patient)
            except _Enough:
                if patient:
                    return Below(too_large=True)
                if answer is not None:
                    return answer
            except NotKnownYet as unknown:
                if answer is None:
                    raise
                unknown.drop()
                return answer
            asked = self._answers.setdefault(path, _Answer())
            while len(self._answers) > MAX_ANSWERS:
                self._answers.popitem(last=False)
            again = os.dup(top)
            raise NotKnownYet(partial(self._answer, again, path, asked), partial(os.close, again))
        finally:
            os.close(top)

    def changed(self, parts: Parts) -> None:
        """Note that the lease has changed a name: what was found out of a directory above or below counts no more."""
        for path in list(self._answers):
            if all(one == other for one, other in zip(path, parts, strict=False)):
                self._answers.pop(path, None)

    def followed(self, before: os.stat_result, after: os.stat_result) -> None:
        """Note that a directory was moved by the lease, which changes nothing in it but its change time."""
        with self._keeping:
            listed = self._listed.get(before.st_ino)
            same = listed is not None and listed.changed == (before.st_mtime_ns, before.st_ctime_ns)
            if listed is not None and same and after.st_mtime_ns == before.st_mtime_ns:
                self._listed[before.st_ino] = replace(listed, changed=(after.st_mtime_ns, after.st_ctime_ns))

    def _found(self, path: tuple[bytes, ...]) -> Below | None:
        """Take the answer for a directory, where there is one that can't be told again at once."""
        answer = self._answers.get(path)
        if answer is None or answer.below is None:
            return None
        self._answers.pop(path, None)
        fresh = time.monotonic() - answer.found <= ANSWER_SECONDS
        return answer.below if fresh and answer.below.looks > QUICK_ENTRIES else None

    def _answer(self, top: int, path: tuple[bytes, ...], asked: _Answer) -> None:
        try:
            below = self._look(top, path, MAX_HELD_ENTRIES, patient=True)
        except _Enough:
            below = Below(too_large=True)
        asked.found = time.monotonic()
        asked.below = below

    def _look(self, top: int, path: tuple[bytes, ...], entries: int, *, patient: bool) -> Below:
        shut: list[tuple[bytes, ...]] = []
        room: int | None = None
        left = entries
        height = looks = 0
        for level in descend(top, path, shut.append):
            listed, looked_at = self._list(level, left)
            left -= looked_at
            looks += listed.looks
            height = max(height, len(level.parts) - len(path))
            if self._holds(level, listed, patient=patient):
                return Below(held=True)
            for climb in listed.climbs:
                if climb <= len(level.parts):
                    spare = len(level.parts) - climb
                    room = spare if room is None else min(room, spare)
            level.enter.extend((name, False) for name in listed.directories)
            if shut:
                return Below(held=True)  # what nobody can look into may hold anything
        return Below(held=bool(shut), room=room, height=height, looks=looks)

    def _list(self, level: Level, left: int) -> tuple[_Listed, int]:
        """Return what is in a directory, and how many entries had to be looked at.

        Raises:
            _Enough: more than ``left``.
        """
        status = os.fstat(level.fd)
        changed = status.st_mtime_ns, status.st_ctime_ns
        known = self._listed.get(status.st_ino)
        if known is not None and known.changed == changed:
            if known.looks > left:
                raise _Enough
            with suppress(KeyError):
                self._listed.move_to_end(status.st_ino)
            return known, known.looks
        directories: list[bytes] = []
        notable: list[bytes] = []
        shared: list[bytes] = []
        climbs: set[int] = set()
        seen = 1
        with os.scandir(level.fd) as found:
            for entry in found:
                seen += 1
                if seen > left:
                    raise _Enough
                name = os.fsencode(entry.name)
                if self._rules.notable(name):
                    notable.append(name)
                if entry.is_dir(follow_symlinks=False):
                    directories.append(name)
                    continue
                with suppress(OSError):
                    if entry.is_symlink() and (climb := _climb(os.readlink(name, dir_fd=level.fd))) is not None:
                        climbs.add(climb)
                    if entry.stat(follow_symlinks=False).st_nlink > 1:
                        shared.append(name)
        listed = _Listed(changed, tuple(directories), tuple(notable), tuple(shared), tuple(climbs))
        if status.st_ctime_ns < time.time_ns() - CLOCK_NS:
            # One that has just changed may change again within the same tick, which its times would not tell.
            self._keep(status.st_ino, listed)
        return listed, seen

    def _keep(self, inode: int, listed: _Listed) -> None:
        with self._keeping:
            before = self._listed.pop(inode, None)
            self._bytes += listed.weight - (before.weight if before is not None else 0)
            self._listed[inode] = listed
            while self._bytes > MAX_KEPT_BYTES and self._listed:
                self._bytes -= self._listed.popitem(last=False)[1].weight

    def _holds(self, level: Level, listed: _Listed, *, patient: bool) -> bool:
        """Tell whether one of the names in a directory is the delegator's, and hidden or locked."""
        rules = self._rules
        for name in listed.notable:
            parts = (*level.parts, name)
            if rules.locked(parts) or (rules.hidden(parts) and not self._is_own(level, parts)):
                return True
            if name not in listed.directories and rules.directory_only(parts):
                return True
        for name in listed.shared if self._shared is not None else ():
            parts = (*level.parts, name)
            with suppress(FileNotFoundError):
                status = os.stat(name, dir_fd=level.fd, follow_symlinks=False)
                if status.st_nlink < 2 or stat.S_ISDIR(status.st_mode):
                    continue
                assert self._shared is not None
                if self._shared.shows_hidden(status, parts, patient=patient):
                    return True
        return False

    def _is_own(self, level: Level, parts: tuple[bytes, ...]) -> bool:
        try:
            status = os.stat(parts[-1], dir_fd=level.fd, follow_symlinks=False)
        except FileNotFoundError:
            return True  # gone since it was listed
        return self._own(parts, status, level.fd, parts[-1])


def check_below(below: Below, old: Parts, new: Parts) -> None:
    """Refuse to move the directory ``old`` to ``new`` by what lies below it.

    Raises:
        OSError: ``EACCES`` for what is moved by nobody, ``EXDEV`` where the client has to copy instead,
            ``ENAMETOOLONG`` for what would lie deeper than the audit reads.
    """
    deeper = len(new) - len(old)
    if below.held:
        raise refused(errno.EACCES)
    if below.too_large or (below.room is not None and below.room + deeper < 0):
        raise refused(errno.EXDEV)
    if deeper > 0 and len(new) + below.height > MAX_DEPTH:
        raise refused(errno.ENAMETOOLONG)


def _climb(target: bytes) -> int | None:
    """Return how many directories a link climbs before it goes down again; None for one that never stays inside."""
    if not target or target.startswith(b"/"):
        return None
    climb = 0
    climbing = True
    for part in target.split(b"/"):
        if part == b"..":
            if not climbing:
                return None
            climb += 1
        elif part not in (b"", b"."):
            climbing = False
    return climb

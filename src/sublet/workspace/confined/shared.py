"""Which files of a lent directory have further names, and whether the view shows all of them.

A file may have names that no rule sees: outside of the directory, where writing through the lease would change it, and
hidden ones, whose content any other name would show. Only files with more than one name can be so, and giving a file a
name or taking one sets its change time. So one look over the whole directory holds for every file that has not changed
since, and only for one that has another look is needed.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from sublet.disk.openat2 import DIRECTORY_PATH, Opener
from sublet.workspace.confined.descend import Level, descend
from sublet.workspace.confined.later import need
from sublet.workspace.confined.nested_mounts import NestedMounts
from sublet.workspace.export import ViewRules
from sublet.workspace.viewpath import Parts

MAX_NAMES: Final = 64
"""Names of one file that are compared; one with more is taken to have others that are not shown."""
MAX_NAMES_BYTES: Final = 8 << 20
"""What the names of files with more than one may take in memory."""
MAX_VERDICTS: Final = 20_000
"""Files that changed since the last look and are known all the same."""
MAX_LOOK_ENTRIES: Final = 3_000_000
"""Names of a directory that one look covers; beyond it, no file with further names is shown or written in place."""
MAX_PAUSE_SECONDS: Final = 2.0
"""How long a look waits at most, so that looking takes no more than half of the time."""
CLOCK_NS: Final = 20_000_000
"""By how much a file system's clock may lag behind the system's."""
_NAME_BYTES: Final = 150

OwnHidden = Callable[[Parts, os.stat_result, int, bytes], bool]
"""Tells of a name that rules hide whether it is what the lease made itself there."""


@dataclass(slots=True)
class _Look:
    """What one look over the directory found; it holds for files that changed last before ``since_ns``."""

    since_ns: int
    hidden: set[int] = field(default_factory=set)
    names: dict[int, set[bytes]] = field(default_factory=dict)
    whole: bool = True


class SharedFiles:
    """What is known of one directory's files with several names.

    Args:
        root_fd: descriptor of the directory, which stays the caller's and open as long as this is used.
        rules: which names the view hides.
        mounts: what is mounted inside, which is never looked into.
        open_beneath: how directories are opened.
        own: tells of a hidden name whether the lease made what is there.
    """

    def __init__(
        self, root_fd: int, rules: ViewRules, mounts: NestedMounts, open_beneath: Opener, own: OwnHidden
    ) -> None:
        self._root = root_fd
        self._rules = rules
        self._mounts = mounts
        self._open = open_beneath
        self._own = own
        self._look: _Look | None = None
        self._linked: OrderedDict[int, set[bytes]] = OrderedDict()
        self._linked_bytes = 0
        self._verdicts: OrderedDict[int, tuple[int, int, bool]] = OrderedDict()
        self._moved = False
        self._looking = threading.Lock()
        self._looked_at = self._pause_until = 0.0
        self._offset = _clock_offset()

    def shows_hidden(self, status: os.stat_result, parts: Parts, *, patient: bool) -> bool:
        """Tell whether a file, which has several names, has a hidden one among them.

        Raises:
            NotKnownYet: that has to be found out first.
        """
        verdict = self._verdict(status)
        if verdict is None and self._all_shown(status, parts):
            verdict = False
        if verdict is None:
            need(*self._learn(status), patient=patient)
            verdict = self._verdict(status)
        return verdict is not False

    def stays_inside(self, status: os.stat_result, parts: Parts, *, patient: bool) -> bool:
        """Tell whether every name of a file, of which ``parts`` was one, is shown by the view, and may be changed.

        Raises:
            NotKnownYet: that has to be found out first.
        """
        if status.st_nlink > MAX_NAMES:
            return False
        if self._all_shown(status, parts, changed=True):
            return True
        if status.st_nlink < 2:
            return False
        if self._verdict(status) is None or self._moved:
            need(*self._learn(status), patient=patient)
            return self._all_shown(status, parts, changed=True)
        return False

    def linked(self, before: os.stat_result, after: os.stat_result, old: Parts, new: Parts) -> None:
        """Note that the lease gave a file that showed nothing hidden a second name."""
        names = self._known(after.st_ino)
        if len(names) < 2 * MAX_NAMES:
            self._keep(after.st_ino, {*names, b"/".join(old), b"/".join(new)})
        self.changed(before, after, 1)

    def renamed(self, status: os.stat_result, new: Parts) -> None:
        """Note that the lease gave a file with several names another one in place of one of them."""
        if (names := self._known(status.st_ino)) and len(names) < 2 * MAX_NAMES:
            self._keep(status.st_ino, {*names, b"/".join(new)})

    def moved(self) -> None:
        """Note that the lease moved a directory, so that names that were known may be others now."""
        self._moved = bool(self._linked) or bool(self._look and self._look.names)

    def changed(self, before: os.stat_result, after: os.stat_result, more: int) -> None:
        """Note that the lease itself changed a file that showed nothing hidden, and gave it ``more`` names."""
        if after.st_nlink == before.st_nlink + more and after.st_nlink > 1:
            self._remember(after, False)

    def _verdict(self, status: os.stat_result) -> bool | None:
        """Return whether the file has a hidden name, or None where that is not known."""
        look = self._look
        if look is None or abs(_clock_offset() - self._offset) > 1:
            return None
        if status.st_ctime_ns < look.since_ns:
            return not look.whole or status.st_ino in look.hidden
        found = self._verdicts.get(status.st_ino)
        return found[2] if found is not None and found[:2] == (status.st_nlink, status.st_ctime_ns) else None

    def _remember(self, status: os.stat_result, verdict: bool) -> None:
        self._verdicts.pop(status.st_ino, None)
        self._verdicts[status.st_ino] = status.st_nlink, status.st_ctime_ns, verdict
        while len(self._verdicts) > MAX_VERDICTS:
            self._verdicts.popitem(last=False)

    def _known(self, inode: int) -> set[bytes]:
        return self._linked.get(inode) or (self._look.names.get(inode, set()) if self._look is not None else set())

    def _keep(self, inode: int, names: set[bytes]) -> None:
        self._linked_bytes -= _weight(self._linked.pop(inode, set()))
        self._linked[inode] = names
        self._linked_bytes += _weight(names)
        while self._linked_bytes > MAX_NAMES_BYTES and self._linked:
            self._linked_bytes -= _weight(self._linked.popitem(last=False)[1])

    def _all_shown(self, status: os.stat_result, parts: Parts, *, changed: bool = False) -> bool:
        """Tell whether names that the view shows, and that still lead to the file, are all that it has.

        Where it is to be ``changed``, names that no lease changes do not count.
        """
        if status.st_nlink > MAX_NAMES:
            return False
        found = 1 if self._leads(parts, status, changed=changed) else 0
        if found == status.st_nlink:
            return True
        own = b"/".join(parts)
        for name in list(self._known(status.st_ino))[: 2 * MAX_NAMES]:
            if name != own and self._leads(name.split(b"/"), status, changed=changed):
                found += 1
        return found == status.st_nlink

    def _leads(self, parts: Sequence[bytes], status: os.stat_result, *, changed: bool) -> bool:
        rules = self._rules
        if not parts or self._mounts.covers(parts):
            return False
        if changed and (rules.locked(parts) or rules.kept(parts) or rules.checked(parts)):
            return False
        try:
            directory = self._open(self._root, b"/".join(parts[:-1]) or b".", DIRECTORY_PATH)
        except OSError:
            return False
        try:
            found = os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            if not os.path.samestat(found, status):
                return False
            return not rules.hidden(parts) or self._own(parts, found, directory, parts[-1])
        except OSError:
            return False
        finally:
            os.close(directory)

    def _learn(self, status: os.stat_result) -> tuple[Callable[[], None], Callable[[], None]]:
        root = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._root)
        asked = time.monotonic()

        def learn() -> None:
            with self._looking:
                if self._looked_at > asked and self._verdict(status) is not None and not self._moved:
                    os.close(root)  # somebody else has looked since this was asked
                    return
                wait = self._pause_until - time.monotonic()
                young = (status.st_ctime_ns + CLOCK_NS - time.time_ns()) / 1e9
                # so that what has just changed has settled, and nobody has us look all the time
                time.sleep(max(0.0, min(wait, MAX_PAUSE_SECONDS), min(young, CLOCK_NS / 1e9)))
                began = self._looked_at = time.monotonic()
                self._offset = _clock_offset()
                moved, self._moved = self._moved, False
                try:
                    look = self._look_over(root)
                except BaseException:
                    self._moved = moved
                    raise
                self._look = look
                self._linked.clear()
                self._linked_bytes = 0
                if status.st_ctime_ns >= look.since_ns:  # by a clock that is ahead of ours
                    self._remember(status, not look.whole or status.st_ino in look.hidden)
                self._pause_until = time.monotonic() + min(MAX_PAUSE_SECONDS, time.monotonic() - began)

        return learn, partial(os.close, root)

    def _look_over(self, root: int) -> _Look:
        """Return what the whole directory holds; closes ``root``."""
        look = _Look(time.time_ns() - CLOCK_NS)
        left = MAX_LOOK_ENTRIES
        expected: dict[int, int] = {}
        weight = 0
        for level in descend(root, (), lambda _: None):
            with os.scandir(level.fd) as entries:
                for entry in entries:
                    left -= 1
                    name = os.fsencode(entry.name)
                    parts = (*level.parts, name)
                    with contextlib.suppress(OSError):
                        found = self._entry(level, entry, parts)
                        if found is None:
                            continue
                        status, hidden = found
                        if hidden:
                            look.hidden.add(status.st_ino)
                        elif status.st_nlink <= MAX_NAMES and weight < MAX_NAMES_BYTES:
                            path = b"/".join(parts)
                            weight += len(path) + _NAME_BYTES
                            look.names.setdefault(status.st_ino, set()).add(path)
                            expected[status.st_ino] = status.st_nlink
            if left < 0:
                look.whole = False
                break
        # names elsewhere can't be compared, so that those here are of no use
        look.names = {inode: names for inode, names in look.names.items() if len(names) >= expected[inode]}
        return look

    def _entry(
        self, level: Level, entry: os.DirEntry[str], parts: tuple[bytes, ...]
    ) -> tuple[os.stat_result, bool] | None:
        """Return the status of a file with several names and whether it is hidden; have directories entered."""
        if self._mounts.covers(parts):
            return None
        hidden = level.marked or self._rules.hidden(parts)
        if entry.is_dir(follow_symlinks=False):
            level.enter.append((parts[-1], hidden))
            return None
        status = entry.stat(follow_symlinks=False)
        if status.st_nlink < 2:
            return None
        if hidden and self._rules.hidden(parts) and self._own(parts, status, level.fd, parts[-1]):
            hidden = False
        return status, hidden or self._rules.directory_only(parts)


def _clock_offset() -> float:
    return time.time() - time.monotonic()


def _weight(names: set[bytes]) -> int:
    return sum(len(name) + _NAME_BYTES for name in names)


def is_shared(status: os.stat_result) -> bool:
    """Tell whether what has this status has several names at all; directories count otherwise."""
    return status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode)


def is_shared_at(directory: int, name: bytes) -> bool:
    """Tell whether something with several names is under this one."""
    try:
        return is_shared(os.stat(name, dir_fd=directory, follow_symlinks=False))
    except OSError:
        return False

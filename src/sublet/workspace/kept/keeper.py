"""Keeps the state before, whenever a live lease is about to change what it did not write last (DESIGN 13).

Our server makes every change of a lease, so that it can look at each file first. A file that is as the snapshot before
the lease has it costs nothing. So does one that is as the lease itself left it. Anything else is copied, its blocks
shared where the file system can, and said to be another's edit where it came to be during the lease.

What is weak: the file system's change time tells states apart, so that an edit of somebody else within the same tick
of its clock (1 to 10 ms) and of the same size is not seen.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

from sublet.disk.private_dir import PrivateDir
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.audit.snapshot import MAX_STORED_BYTES
from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.file_copy import copy_content
from sublet.workspace.kept.log import (
    LOG,
    MAX_LOG_BYTES,
    By,
    KeptDirectory,
    KeptPlace,
    KeptState,
    Overwritten,
    Signature,
    encode_directory,
    encode_state,
    encode_unwritten,
)
from sublet.workspace.model import ViewRules
from sublet.workspace.viewpath import Parts, refused

MAX_KEPT_BYTES: Final = 1 << 30
"""Of all contents that are kept for one lease."""
MAX_KNOWN: Final = 30_000
"""Files of which it is known how the lease left them; what it left of others is kept before it changes them again."""
MIN_FREE_BYTES: Final = 64 << 20
"""Bytes that a copy leaves free on the disk of the state directory."""
QUICK_BYTES: Final = 1 << 20
"""Bytes that are copied where everybody waits; more are copied in a thread."""
MAX_TRIES: Final = 3
"""How often a large file is copied that somebody else is writing meanwhile."""
MAX_LINE_BYTES: Final = 64 << 10
CLOCK_NS: Final = 20_000_000
"""By how much a file system's clock may lag behind the system's."""
_CREATE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS: Final = 0o7777

_Times = tuple[int, int, int]
"""What a ``Signature`` holds."""
Reading = Callable[[], int]
"""Opens the file for reading; the descriptor becomes the caller's."""


@dataclass(frozen=True, slots=True)
class _LaterCopy:
    """A copy that was made in a thread, of the file in this state; ``number`` is -1 where that failed."""

    signature: Signature
    number: int
    tries: int


@dataclass(slots=True)
class KeptBudget:
    """What all directories of one lease may keep, and whether the lease may change what can't be kept.

    ``must_keep`` refuses the change instead; ``bytes`` are those that are kept so far.
    """

    limit: int = MAX_KEPT_BYTES
    must_keep: bool = False
    bytes: int = 0

    def has_room(self, size: int) -> bool:
        """Tell whether ``size`` more bytes fit."""
        return self.bytes + size <= self.limit


class Keeper:
    """Keeps the states of one directory for one lease.

    All but the copying of large files happens in the thread that serves the lease.

    Args:
        place: as ``open_place`` returned it.
        rules: those of the lease.
        budget: shared by the directories of the lease.

    Raises:
        SubletError: ``UNAVAILABLE`` where the directory can't be read.
    """

    def __init__(self, place: KeptPlace, rules: ViewRules, budget: KeptBudget) -> None:
        found = place.found
        self._inodes = place.inodes
        try:
            self._directory = PrivateDir.open(place.directory)
            self._log = os.open(
                LOG, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._directory.fileno()
            )
        except OSError as exc:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"where the lease keeps what it overwrites can't be opened: {exc.strerror}",
                "Look at the state directory: sublet doctor",
            ) from None
        self._budget = budget
        self._snapshot_rules = rules.without_repository()
        self._settled_ns = found.begin_ns - CLOCK_NS
        self._known: OrderedDict[int, _Times | None] = OrderedDict(found.known)
        self._unwritten = found.unwritten
        self._modes = found.made
        self._writing: set[int] = set()
        self._forgot = not found.complete
        while len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
            self._forgot = True
        self._log_bytes = os.fstat(self._log).st_size
        self._end_torn_line()
        self._numbers = itertools.count(1 + _highest(self._directory))
        budget.bytes += _kept_bytes(found)
        self._copying = threading.Lock()
        self._copies: dict[int, _LaterCopy] = {}
        """Copies that were made in a thread, by inode."""

    def knows(self, status: os.stat_result) -> bool:
        """Tell whether nothing has to be kept of a file: it is as the lease left it, or as what is kept."""
        known = self._known.get(status.st_ino)
        return known is not None and known == (status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def before(self, parts: Parts, status: os.stat_result, reading: Reading, *, patient: bool) -> None:
        """Keep what a file or link holds, unless that is kept, in the snapshot, or the lease's own.

        Args:
            parts: its name.
            status: its status.
            reading: opens it.
            patient: whether a large file is copied at once.

        Raises:
            OSError: ``EDQUOT`` where it can't be kept and the lease must keep all.
            NotKnownYet: it has to be copied first, which takes long.
        """
        if self.knows(status) or not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            return
        signature = Signature.of(status)
        by, path = self._whose(status, signature, b"/".join(parts))
        if by == "first" and self._is_in_snapshot(parts, status):
            self._know(status.st_ino, signature)
            return
        number, target, lost = None, None, False
        try:
            if stat.S_ISLNK(status.st_mode):
                target = self._target(reading)
            else:
                number = self._copied(status, signature, reading, patient=patient)
        except OSError:
            lost = True
        state = KeptState(
            path,
            by,
            status.st_mode & _PERMISSIONS,
            status.st_mtime_ns,
            (status.st_uid, status.st_gid),
            status.st_size,
            number,
            target,
            lost,
        )
        must_keep = self._budget.must_keep
        if (lost and must_keep) or (not self._append(encode_state(state)) and must_keep):
            if number is not None:
                self._discard(_LaterCopy(signature, number, 0))
            raise refused(errno.EDQUOT)
        self._know(status.st_ino, signature)

    def wrote(self, status: os.stat_result) -> None:
        """Take note of how the lease leaves a file that it goes on writing."""
        inode = status.st_ino
        signature = status.st_size, status.st_mtime_ns, status.st_ctime_ns
        if inode in self._writing:  # each of many writes comes here
            self._known[inode] = signature
            return
        self._writing.add(inode)
        self._append(b"W %d\n" % inode)
        self._know(inode, signature)

    def closed(self, inode: int) -> None:
        """Take note that the lease is done with a file for now, and how it left it."""
        if inode not in self._writing:
            return
        self._writing.discard(inode)
        if (signature := self._known.get(inode)) is not None:
            self._append(_known_line(inode, signature))

    def settled(self, status: os.stat_result) -> None:
        """Take note of how the lease leaves a file or link with which it is done for now."""
        self._writing.discard(status.st_ino)
        self._remember(status.st_ino, Signature.of(status))

    def followed(self, before: os.stat_result, after: os.stat_result, path: bytes) -> None:
        """Take note that the lease gave something another name, or took one, which changes nothing in it.

        Args:
            before: its status before.
            after: its status now.
            path: the name that it had.
        """
        if before.st_ino != after.st_ino:
            return
        if stat.S_ISDIR(after.st_mode):
            if after.st_ino not in self._modes:
                self.before_directory(path.split(b"/"), before)
                self.made_directory(after)
            return
        signature = Signature.of(before)
        if self._known.get(before.st_ino) == signature:
            self._remember(after.st_ino, Signature.of(after))
            return
        by, path = self._whose(before, signature, path)
        if by == "first" and self._is_in_snapshot(path.split(b"/"), before):
            self._remember(after.st_ino, Signature.of(after))
        elif by == "first" and len(self._unwritten) < MAX_KNOWN:
            self._unwritten[after.st_ino] = Signature.of(after), path
            self._append(encode_unwritten(after.st_ino, Signature.of(after), path))
        elif by == "first":
            self._forgot = True

    def made_directory(self, status: os.stat_result) -> None:
        """Take note that the lease made a directory, or which mode it gave one."""
        mode = status.st_mode & _PERMISSIONS
        if len(self._modes) < MAX_KNOWN or status.st_ino in self._modes:
            self._modes[status.st_ino] = mode
            self._append(b"M %d %d\n" % (status.st_ino, mode))

    def before_directory(self, parts: Parts, status: os.stat_result) -> None:
        """Take note of a directory that is about to be removed, or to get another mode."""
        mode = status.st_mode & _PERMISSIONS
        if (ours := self._modes.get(status.st_ino)) != mode:
            by: By = "first" if ours is None else "other"
            self._append(encode_directory(KeptDirectory(b"/".join(parts), by, mode)))

    def close(self) -> None:
        """Write down how the lease left what it was writing, and let go. Idempotent."""
        if self._log < 0:
            return
        for inode in list(self._writing):
            self.closed(inode)
        os.close(self._log)
        self._log = -1
        self._let_go()

    def _let_go(self) -> None:
        """Let go of the directory, unless a thread is copying into it, which does so when it is done."""
        if not self._copying.acquire(blocking=False):
            return
        try:
            while self._copies:
                self._discard(self._copies.popitem()[1])
            self._directory.close()
        finally:
            self._copying.release()

    def _whose(self, status: os.stat_result, signature: Signature, path: bytes) -> tuple[By, bytes]:
        """Return whose state a file is in, and the name that it had before the lease."""
        if status.st_ctime_ns < self._settled_ns:
            return "first", path
        unwritten = self._unwritten.get(status.st_ino)
        if unwritten is not None and unwritten[0] == signature:
            return "first", unwritten[1]
        if status.st_ino in self._known:
            left = self._known[status.st_ino]
            same_content = left is not None and left[:2] == signature[:2]
            return "unsure" if left is None or same_content else "other", path
        return "unsure" if self._forgot else "other", path

    def _is_in_snapshot(self, parts: Parts, status: os.stat_result) -> bool:
        if status.st_size > MAX_STORED_BYTES or self._snapshot_rules.hidden(parts):
            return False
        if stat.S_ISLNK(status.st_mode):
            return False  # its target is short, and is kept
        at = bisect_left(self._inodes, status.st_ino)
        return at < len(self._inodes) and self._inodes[at] == status.st_ino

    def _target(self, reading: Reading) -> bytes:
        fd = reading()
        try:
            return os.readlink(b"", dir_fd=fd)
        finally:
            os.close(fd)

    def _copied(self, status: os.stat_result, signature: Signature, reading: Reading, *, patient: bool) -> int:
        """Return the number of the copy of a file.

        Raises:
            OSError: it can't be copied, or there is no room.
            NotKnownYet: that takes long.
        """
        made = self._copies.pop(status.st_ino, None)
        if made is not None and (made.signature == signature or made.tries >= MAX_TRIES):
            if made.number < 0:
                raise refused(errno.ENOSPC)
            return made.number  # where somebody writes it all the time, one of its states is as good as another
        if made is not None:
            self._discard(made)
        tries = 1 if made is None else made.tries + 1
        self._check_room(signature.size)
        source = reading()
        try:
            if not os.path.samestat(os.fstat(source), status):
                raise refused(errno.ESTALE)
            if patient or signature.size <= QUICK_BYTES:
                number = self._copy(source, signature.size)
                os.close(source)
                return number
        except BaseException:
            os.close(source)
            raise
        raise NotKnownYet(partial(self._copy_later, source, status.st_ino, tries), partial(os.close, source))

    def _check_room(self, size: int) -> None:
        """Refuse a copy beyond the budget, or one that would fill the disk.

        Raises:
            OSError: ``ENOSPC``.
        """
        disk = os.fstatvfs(self._directory.fileno())
        if not self._budget.has_room(size) or disk.f_bavail * disk.f_frsize < size + MIN_FREE_BYTES:
            raise refused(errno.ENOSPC)

    def _copy_later(self, source: int, inode: int, tries: int) -> None:
        try:
            with self._copying:
                signature = Signature.of(os.fstat(source))
                known = self._copies.get(inode)
                if self._log < 0 or (known is not None and known.signature == signature):
                    return
                try:
                    self._check_room(signature.size)
                    number = self._copy(source, signature.size)
                except OSError:
                    number = -1
                self._copies[inode] = _LaterCopy(signature, number, tries)
        finally:
            os.close(source)
            if self._log < 0:
                self._let_go()

    def _discard(self, copy: _LaterCopy) -> None:
        if copy.number >= 0:
            self._budget.bytes -= copy.signature.size
            with suppress(OSError):
                os.unlink(str(copy.number), dir_fd=self._directory.fileno())

    def _copy(self, source: int, size: int) -> int:
        """Copy a file and return the number of the copy.

        Raises:
            OSError: there is no room.
        """
        number = next(self._numbers)
        target = os.open(str(number), _CREATE, 0o600, dir_fd=self._directory.fileno())
        try:
            copy_content(source, target, size)
        except BaseException:
            with suppress(OSError):
                os.unlink(str(number), dir_fd=self._directory.fileno())
            raise
        finally:
            os.close(target)
        self._budget.bytes += size
        return number

    def _remember(self, inode: int, signature: Signature) -> None:
        if self._known.get(inode) != signature or inode in self._writing:
            self._append(_known_line(inode, signature))
        self._know(inode, signature)

    def _know(self, inode: int, signature: _Times) -> None:
        self._known[inode] = signature
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
            self._forgot = True

    def _end_torn_line(self) -> None:
        if self._log_bytes and self._log_bytes < MAX_LOG_BYTES:
            self._append(b"\n")

    def _append(self, line: bytes) -> bool:
        """Write down one fact; False where that can't be."""
        if self._log < 0 or self._log_bytes + len(line) > MAX_LOG_BYTES or len(line) > MAX_LINE_BYTES:
            self._forgot = True
            return False
        try:
            written = os.write(self._log, line)
        except OSError:
            self._forgot = True
            return False
        self._log_bytes += written
        if written < len(line):
            self._forgot = True
            return False
        return True


def _known_line(inode: int, signature: _Times) -> bytes:
    return b"K %d %d %d %d\n" % (inode, *signature)


def _kept_bytes(found: Overwritten) -> int:
    return sum(state.size for state in found.states if state.number is not None)


def _highest(directory: PrivateDir) -> int:
    """Return the highest number of a copy that is there, counted in the list or not."""
    fd = os.open(b".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory.fileno())
    try:
        return max((int(name) for name in os.listdir(fd) if name.isdecimal()), default=-1)
    finally:
        os.close(fd)

"""An open file of a lent directory that may be changed, each change charged before it is made (DESIGN 4.6)."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from sublet.workspace.confined.handles import OPEN_FILE, ReadFile, Shown
from sublet.workspace.kept.blocks import ALL, NOTHING, Span
from sublet.workspace.quota import Quota
from sublet.workspace.viewpath import Parts

PERMISSION_BITS: Final = 0o777
"""Modes a client may set: never setuid, setgid or sticky."""
SURE_SECONDS: Final = 0.05
"""How long a file with one name is known to have it in the view, unless the lease changes names: by then the delegator
may have moved it elsewhere."""
_KEPT_FLAGS: Final = os.O_RDONLY | os.O_WRONLY | os.O_RDWR | os.O_APPEND

_UMASK_TELLERS: Final = Path("/proc/self/status")


def process_umask() -> int:
    """Return this process's umask, without changing it where the kernel tells."""
    try:
        for line in _UMASK_TELLERS.read_bytes().splitlines():
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    except OSError:
        pass
    mask = os.umask(0o077)  # for want of a call that only asks; no file of ours is made in between
    os.umask(mask)
    return mask


OnChange = Callable[[Parts], None]


class Changing(Protocol):
    """What a file asks before it is changed; implemented by the tree it is in."""

    @property
    def names_changed(self) -> int:
        """How often the lease has made, moved or removed a name."""

    def claim(
        self, parts: Parts, status: os.stat_result, keep: int | None = None, fd: int = -1, span: Span = NOTHING
    ) -> None:
        """Make sure that a file is changed in the view alone: one with names elsewhere gets a copy of its own here.

        What it holds is kept before, where the lease did not write it.

        Args:
            parts: the name by which it was opened, or is called since.
            status: its status.
            keep: how many of its bytes are still needed; all by default.
            fd: a descriptor of it, where one is open.
            span: the bytes that are about to be overwritten or cut off; none where only mode or times change.

        Raises:
            OSError: ``EACCES`` for a file that has come to be a hidden one's, ``ESTALE`` where the name leads to
                another one now while this one has names still, ``EDQUOT``.
            NotKnownYet: that has to be found out first.
        """

    def knows(self, status: os.stat_result, span: Span) -> bool:
        """Tell whether a file is as the lease left it, or what it holds in ``span`` is kept already."""

    def check_mode(self, parts: Parts, status: os.stat_result, mode: int) -> None:
        """Refuse permissions that would hide a file or directory from the audit, and tell so.

        Raises:
            OSError: ``EACCES``.
        """

    def writes(self, inode: int) -> None:
        """Take note that the lease is about to change a file that is open."""

    def wrote(self, fd: int) -> None:
        """Take note that the lease has just changed what is open."""

    def closed(self, file: WriteFile) -> None:
        """Forget a file that is about to be closed."""


class WriteFile(ReadFile):
    """A regular file that may be changed: its data as far as it is open for writing, its mode and times anyway."""

    __slots__ = ("_append", "_changed", "_quota", "_sure_of", "_sure_until", "_tell", "_tree")

    def __init__(
        self,
        fs: Shown,
        tree: Changing,
        fd: int,
        parts: Parts,
        quota: Quota,
        tell: OnChange,
        *,
        append: bool,
    ) -> None:
        super().__init__(fs, fd, parts)
        self._tree = tree
        self._quota = quota
        self._tell = tell
        self._append = append
        self._changed = False
        self._sure_of, self._sure_until = -1, 0.0

    @property
    def parts(self) -> Parts:
        """What the file is called now, as far as the lease knows."""
        return self._parts

    @property
    def has_changed(self) -> bool:
        """Whether anything of it was changed through this handle."""
        return self._changed

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of ``data`` at ``offset``, or at the end where the file was opened to append.

        Raises:
            OSError: ``EDQUOT`` with nothing written; ``ENOSPC`` and others after a part, which then counts; and as
                ``Changing.claim``.
            NotKnownYet: as ``Changing.claim``.
        """
        self._claim(span=NOTHING if self._append else (offset, offset + len(data)))  # appending overwrites nothing
        if not self._quota.counts_sizes:
            self._write_all(data, offset)
            return
        size = os.fstat(self.fd).st_size
        end = (size if self._append else offset) + len(data)
        grown = max(size, end) if data else size  # writing nothing far behind the end extends nothing
        self._quota.resize(size, grown)
        try:
            self._write_all(data, offset)
        except OSError:
            self._quota.bytes -= max(0, grown - os.fstat(self.fd).st_size)
            raise

    def truncate(self, size: int) -> None:
        """Cut or extend the file to ``size`` bytes.

        Raises:
            OSError: ``EDQUOT``, ``EINVAL`` and others, and nothing is changed; and as ``Changing.claim``.
            NotKnownYet: as ``Changing.claim``.
        """
        self._claim(keep=size, span=(size, ALL[1]))
        before = os.fstat(self.fd).st_size
        self._quota.resize(before, size)
        try:
            os.ftruncate(self.fd, size)
        except OSError:
            self._quota.bytes -= size - before
            raise
        self._tree.wrote(self.fd)

    def set_mode(self, mode: int) -> None:
        """Set the permission bits; setuid, setgid and sticky are dropped.

        Raises:
            OSError: ``EACCES`` for what would hide the file from the audit; as ``Changing.claim`` and ``fchmod(2)``.
            NotKnownYet: as ``Changing.claim``.
        """
        self._tree.check_mode(self._parts, os.fstat(self.fd), mode)
        self._claim()
        os.fchmod(self.fd, mode & PERMISSION_BITS)
        self._tree.wrote(self.fd)

    def set_times(self, times: tuple[int, int]) -> None:
        """Set access and modification time, in seconds. Raises as ``Changing.claim``."""
        self._claim()
        os.utime(self.fd, times=times)
        self._tree.wrote(self.fd)

    def close(self) -> None:
        """Close the descriptor; a rename or a copy-up no longer looks for this handle."""
        self._tree.closed(self)
        super().close()

    def renamed(self, parts: Parts) -> None:
        """Take note that the lease has given the file another name."""
        self._parts = tuple(parts)

    def moved_to(self, directory: int, name: bytes) -> None:
        """Go on with the file that is now under the name ``name`` of an open directory, in place of this one.

        Raises:
            OSError: it can't be opened; then this file stays open.
        """
        flags = fcntl.fcntl(self.fd, fcntl.F_GETFL) & _KEPT_FLAGS
        fd = os.open(name, flags | OPEN_FILE, dir_fd=directory)
        try:
            self._fs.exchange(self.fd, fd)
        finally:
            os.close(fd)

    def _claim(self, keep: int | None = None, span: Span = NOTHING) -> None:
        status = os.fstat(self.fd)
        names = self._tree.names_changed
        unsure = status.st_nlink != 1 or names != self._sure_of or time.monotonic() > self._sure_until
        if unsure or not self._tree.knows(status, span):
            self._tree.claim(self._parts, status, keep, self.fd, span)
            self._sure_of, self._sure_until = self._tree.names_changed, time.monotonic() + SURE_SECONDS
        self._tree.writes(status.st_ino)
        if not self._changed:
            self._changed = True
            self._tell(self._parts)

    def _write_all(self, data: bytes | memoryview, offset: int) -> None:
        # the kernel writes less than asked for when, for one, the disk is nearly full
        try:
            written = os.pwrite(self.fd, data, offset)
            while written < len(data):
                written += os.pwrite(self.fd, data[written:], offset + written)
        finally:
            self._tree.wrote(self.fd)

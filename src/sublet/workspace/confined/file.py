"""An open file of a lent directory that may be changed, each change charged before it is made (DESIGN 4.6)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sublet.workspace.confined.fs import ConfinedFs, ReadFile
from sublet.workspace.quota import Quota
from sublet.workspace.viewpath import Parts

PERMISSION_BITS: Final = 0o777
"""Modes a client may set: never setuid, setgid or sticky."""

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


class WriteFile(ReadFile):
    """A regular file that may be changed: its data as far as it is open for writing, its mode and times anyway."""

    __slots__ = ("_append", "_changed", "_parts", "_quota", "_tell")

    def __init__(self, fs: ConfinedFs, fd: int, parts: Parts, quota: Quota, tell: OnChange, *, append: bool) -> None:
        super().__init__(fs, fd)
        self._parts = tuple(parts)
        self._quota = quota
        self._tell = tell
        self._append = append
        self._changed = False

    def write(self, data: bytes | memoryview, offset: int) -> None:
        """Write all of ``data`` at ``offset``, or at the end where the file was opened to append.

        Raises:
            OSError: ``EDQUOT`` with nothing written; ``ENOSPC`` and others after a part, which then counts.
        """
        self._mark()
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
            OSError: ``EDQUOT``, ``EINVAL`` and others, and nothing is changed.
        """
        self._mark()
        before = os.fstat(self.fd).st_size
        self._quota.resize(before, size)
        try:
            os.ftruncate(self.fd, size)
        except OSError:
            self._quota.bytes -= size - before
            raise

    def set_mode(self, mode: int) -> None:
        """Set the permission bits; setuid, setgid and sticky are dropped."""
        self._mark()
        os.fchmod(self.fd, mode & PERMISSION_BITS)

    def set_times(self, times: tuple[int, int]) -> None:
        """Set access and modification time, in seconds."""
        self._mark()
        os.utime(self.fd, times=times)

    def _mark(self) -> None:
        if not self._changed:
            self._changed = True
            self._tell(self._parts)

    def _write_all(self, data: bytes | memoryview, offset: int) -> None:
        # the kernel writes less than asked for when, for one, the disk is nearly full
        written = os.pwrite(self.fd, data, offset)
        while written < len(data):
            written += os.pwrite(self.fd, data[written:], offset + written)

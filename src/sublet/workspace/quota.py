"""How much a lease may add to a workspace: bytes by file size, files by name."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from sublet.workspace.viewpath import refused


class Quota:
    """Counters of what a lease added, net of what it removed, against the bounds of its ``ExportLimits``.

    Bytes are apparent file sizes, so a sparse file counts in full. A file whose last name is gone still holds its
    bytes until its last handle closes, and so does its share here: otherwise a client could keep any number of
    removed files open. The counters may be negative: a lease that removes more than it adds.

    Args:
        max_bytes: bound of added bytes, or None.
        max_files: bound of added names (files, directories, links), or None.
        on_exceeded: called each time that a change is refused.
    """

    def __init__(
        self, max_bytes: int | None, max_files: int | None, on_exceeded: Callable[[], None] | None = None
    ) -> None:
        self.max_bytes = max_bytes
        self.max_files = max_files
        self.bytes = 0
        self.files = 0
        self._on_exceeded = on_exceeded
        self._open: dict[tuple[int, int], int] = {}

    def add_bytes(self, count: int) -> None:
        """Charge ``count`` bytes; a negative count is credit.

        Raises:
            OSError: ``EDQUOT``, and nothing is charged.
        """
        if count > 0 and self.max_bytes is not None and self.bytes + count > self.max_bytes:
            raise self.exceeded()
        self.bytes += count

    def add_file(self) -> None:
        """Charge one name.

        Raises:
            OSError: ``EDQUOT``, and nothing is charged.
        """
        if self.max_files is not None and self.files >= self.max_files:
            raise self.exceeded()
        self.files += 1

    def remove_file(self, gone: os.stat_result | None = None) -> None:
        """Credit one name; ``gone`` is what the name's file was just before it lost that name."""
        self.files -= 1
        if gone is None or not stat.S_ISREG(gone.st_mode) or gone.st_nlink > 1:
            return
        if (gone.st_dev, gone.st_ino) not in self._open:
            self.bytes -= gone.st_size

    def opened(self, fd: int) -> None:
        """Note that a handle on ``fd`` exists."""
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino)
        self._open[key] = self._open.get(key, 0) + 1

    def closing(self, fd: int) -> None:
        """Note that a handle on ``fd`` is about to be closed, and credit a file that thereby ends."""
        status = os.fstat(fd)
        key = (status.st_dev, status.st_ino)
        left = self._open[key] - 1
        if left:
            self._open[key] = left
            return
        del self._open[key]
        if status.st_nlink == 0:
            self.bytes -= status.st_size

    def exceeded(self) -> OSError:
        """Tell that a change is refused, and return the error for it."""
        if self._on_exceeded is not None:
            self._on_exceeded()
        return refused(errno.EDQUOT)

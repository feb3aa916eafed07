"""How much a lease may add to a workspace: bytes by file size, files by name, and the size of a file (DESIGN 4.6).

The SFTP server asks ``Quota`` before every change. What arrives by another way is counted by the same rules: a stream
of entries charges a ``Quota`` as it is unpacked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.workspace.viewpath import refused

QuotaName = Literal["max_total_bytes", "max_files", "max_file_bytes", "disk"]
"""The bounds of a lease, and the one that no lease sets: the room on the delegator's disk."""

NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a file system answers that has no room, or none for this user."""

_WORDS: Final[dict[QuotaName, str]] = {
    "max_total_bytes": "may add at most {:,} bytes to the directory",
    "max_files": "may add at most {:,} files, links and directories",
    "max_file_bytes": "may let no file grow beyond {:,} bytes",
    "disk": "",
}


@dataclass(frozen=True, slots=True)
class QuotaMet:
    """Which bound of a lease a change was refused for, and its number; 0 for that of the disk."""

    name: QuotaName
    bound: int

    @classmethod
    def of(cls, name: str, bound: int) -> QuotaMet:
        """Return the bound of that name.

        Raises:
            ValueError: there is none.
        """
        for known in _WORDS:
            if known == name:
                return cls(known, bound)
        raise ValueError("there is no such bound")

    def error(self) -> SubletError:
        """Return what a delegation ends with whose writes were refused for this."""
        if self.name == "disk":
            return SubletError(
                ErrorCode.TASK_FAILED,
                "the lender's disk is full, so that what the agent wrote beyond that was refused",
                "Make space there and look at the audit for what arrived; then delegate again.",
            )
        return SubletError(
            ErrorCode.TASK_FAILED,
            f"quota exceeded: the agent {_WORDS[self.name].format(self.bound)} ({self.name}), and what went beyond "
            "was refused",
            f"Look at the audit for what arrived; delegate again with a larger {self.name}, as far as policy.json "
            "allows.",
        )


@dataclass(frozen=True, slots=True)
class TreeSize:
    """Names below a root, without itself, and the bytes of their files."""

    bytes: int = 0
    files: int = 0


class Quota:
    """Counters of what a lease added, net of what it removed, against the bounds of its ``ExportLimits``.

    Bytes are apparent file sizes, so a sparse file counts in full, and a file with several names once. A file whose
    last name is gone still holds its bytes until its last handle closes, and so does its share here: otherwise a client
    could keep any number of removed files open. The counters may be negative: a lease that removes more than it adds.

    Args:
        max_bytes: bound of added bytes, or None.
        max_files: bound of added names (files, directories, links), or None.
        max_file_bytes: bound of a file's size once it grows, or None. A larger file may be there before, and shrink.
        on_met: called each time that a change is refused.
    """

    def __init__(
        self,
        max_bytes: int | None = None,
        max_files: int | None = None,
        max_file_bytes: int | None = None,
        on_met: Callable[[QuotaMet], None] | None = None,
    ) -> None:
        self.max_bytes = max_bytes
        self.max_files = max_files
        self.max_file_bytes = max_file_bytes
        self.bytes = 0
        self.files = 0
        self.met: QuotaMet | None = None
        """The first bound that a change was refused for."""
        self._on_met = on_met
        self._open: dict[tuple[int, int], int] = {}

    @property
    def counts_sizes(self) -> bool:
        """Whether the size of a file matters."""
        return self.max_bytes is not None or self.max_file_bytes is not None

    @property
    def is_full_of_files(self) -> bool:
        """Whether one more name would be refused."""
        return self.max_files is not None and self.files >= self.max_files

    def resize(self, old: int, new: int) -> None:
        """Charge that a file of ``old`` bytes is about to have ``new`` bytes; less is credit.

        Raises:
            OSError: ``EDQUOT``, and nothing is charged.
        """
        if new > old:
            if self.max_file_bytes is not None and new > self.max_file_bytes:
                raise self._refused("max_file_bytes", self.max_file_bytes)
            if self.max_bytes is not None and self.bytes + new - old > self.max_bytes:
                raise self._refused("max_total_bytes", self.max_bytes)
        self.bytes += new - old

    def add_file(self) -> None:
        """Charge one name.

        Raises:
            OSError: ``EDQUOT``, and nothing is charged.
        """
        if self.max_files is not None and self.files >= self.max_files:
            raise self._refused("max_files", self.max_files)
        self.files += 1

    def remove_file(self, gone: os.stat_result | None = None) -> None:
        """Credit one name; ``gone`` is what the name's file was just before it lost that name."""
        self.files -= 1
        if gone is None or not stat.S_ISREG(gone.st_mode) or gone.st_nlink > 1:
            return
        if (gone.st_dev, gone.st_ino) not in self._open:
            self.bytes -= gone.st_size

    def check(self, more: TreeSize, largest_grown: int = 0) -> None:
        """Refuse a plan of changes that would add ``more`` in all; nothing is charged.

        Args:
            more: what the plan adds, net of what it removes.
            largest_grown: size of the largest file that is new or grows.

        Raises:
            OSError: ``EDQUOT``.
        """
        amounts: tuple[tuple[QuotaName, int | None, int, int], ...] = (
            ("max_total_bytes", self.max_bytes, self.bytes, more.bytes),
            ("max_files", self.max_files, self.files, more.files),
            ("max_file_bytes", self.max_file_bytes, 0, largest_grown),
        )
        for name, bound, used, amount in amounts:
            if bound is not None and amount > 0 and used + amount > bound:
                raise self._refused(name, bound)

    def failed(self, exc: OSError) -> None:
        """Take note of a change that the system refused: where that was for want of room, it counts as a bound met."""
        # EDQUOT after a bound of the lease was met is our own.
        if exc.errno in NO_ROOM and (self.met is None or exc.errno == errno.ENOSPC):
            self._meet(QuotaMet("disk", 0))

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

    def _refused(self, name: QuotaName, bound: int) -> OSError:
        self._meet(QuotaMet(name, bound))
        return refused(errno.EDQUOT)

    def _meet(self, met: QuotaMet) -> None:
        self.met = self.met or met
        if self._on_met is not None:
            self._on_met(met)

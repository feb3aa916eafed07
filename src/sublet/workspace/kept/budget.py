"""How many bytes one lease may keep of what it overwrites, in all of its directories together."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field
from typing import Final

from sublet.workspace.viewpath import refused

MAX_KEPT_BYTES: Final = 1 << 30
"""Of all contents that are kept for one lease."""
MIN_FREE_BYTES: Final = 64 << 20
"""Bytes that keeping leaves free on the disk of the state directory."""


@dataclass(slots=True)
class KeptBudget:
    """What all directories of one lease may keep, and whether the lease may change what can't be kept.

    ``must_keep`` refuses the change instead; ``bytes`` are those that are kept so far. Threads that copy share it.
    """

    limit: int = MAX_KEPT_BYTES
    must_keep: bool = False
    bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def has_room(self, size: int) -> bool:
        """Tell whether ``size`` more bytes fit."""
        return self.bytes + size <= self.limit

    def take(self, size: int) -> None:
        """Count ``size`` more bytes."""
        with self._lock:
            self.bytes += size

    def give(self, size: int) -> None:
        """Count ``size`` bytes less: they are not kept any more."""
        with self._lock:
            self.bytes -= size

    def check(self, size: int, directory: int) -> None:
        """Refuse to keep ``size`` more bytes beyond the limit, or where that would fill the disk.

        Args:
            size: in bytes.
            directory: a descriptor of the directory that they go to.

        Raises:
            OSError: ``ENOSPC``.
        """
        disk = os.fstatvfs(directory)
        if not self.has_room(size) or disk.f_bavail * disk.f_frsize < size + MIN_FREE_BYTES:
            raise refused(errno.ENOSPC)

"""What the file system says of one state of a file, so that two states can be told apart without reading them."""

from __future__ import annotations

import os
from typing import NamedTuple


class Signature(NamedTuple):
    """What the file system says of one state of a file. No system call sets the change time."""

    size: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Signature:
        """Return the signature of ``status``."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns)

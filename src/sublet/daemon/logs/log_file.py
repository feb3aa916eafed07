"""The log of a daemon in the background: two files of a bounded size, whatever callers make it write."""

from __future__ import annotations

import logging
import os
from typing import Final, TextIO

MAX_LOG_BYTES: Final = 16 << 20
"""A log that has grown beyond this is put aside, over the one put aside before."""
LOOK_EVERY: Final = 64
"""Lines between two looks at its size; a line is some kilobytes at most."""


class LogFile(logging.StreamHandler[TextIO]):
    """Writes to a stream, and puts its file aside once that is large, where it is the daemon's own log.

    Args:
        stream: to write to.
        path: of the daemon's own log; a stream that leads elsewhere is left as it is.
    """

    def __init__(self, stream: TextIO, path: str) -> None:
        super().__init__(stream)
        self._path = path
        self._lines = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one entry."""
        super().emit(record)
        self._lines += 1
        if self._lines >= LOOK_EVERY:
            self._lines = 0
            try:
                put_aside(self.stream.fileno(), self._path)
            except (OSError, ValueError):
                return  # what can't be put aside, such as on a full disk, is tried again


def put_aside(descriptor: int, path: str) -> None:
    """Begin the log at ``path`` anew where ``descriptor`` is it and it is too large; standard output follows.

    Raises:
        OSError: it can't be put aside; then it is as it was.
    """
    held = os.fstat(descriptor)
    if held.st_size <= MAX_LOG_BYTES or not os.path.samestat(held, os.lstat(path)):
        return
    fresh = f"{path}.new"
    anew = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.replace(path, f"{path}.1")
        os.replace(fresh, path)
        for standing in {1, 2, descriptor}:
            if os.path.samestat(held, os.fstat(standing)):
                os.dup2(anew, standing, inheritable=standing <= 2)
    finally:
        os.close(anew)

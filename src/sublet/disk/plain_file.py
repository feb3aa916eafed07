"""Opening a file that somebody else may have put there: a regular file, bounded, and without waiting for anybody."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import Final

_CHUNK: Final = 1 << 20
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def open_plain(path: Path, *, follow: bool = False, directory: int | None = None) -> int:
    """Return a descriptor of a regular file, to read it. Blocks on the disk alone.

    To open a FIFO waits until somebody writes to it, and a device may never end: neither is opened to be read.

    Args:
        path: the file.
        follow: whether it may be a link.
        directory: the open directory below which a relative ``path`` is.

    Raises:
        OSError: there is none, it can't be read, or it is no regular file.
    """
    descriptor = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=directory)
    try:
        kind = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(kind):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        # A program that inherits it expects to be kept waiting by its standard input.
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~os.O_NONBLOCK)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def read_plain(path: Path, limit: int, *, follow: bool = True, directory: int | None = None) -> bytes:
    """Return the content of a regular file, up to one byte more than ``limit``. Blocks on the disk alone.

    Args:
        path: the file.
        limit: bytes that it may have; whoever gets more knows that it is too large.
        follow: whether it may be a link.
        directory: the open directory below which a relative ``path`` is.

    Raises:
        OSError: as ``open_plain``.
    """
    descriptor = open_plain(path, follow=follow, directory=directory)
    try:
        parts: list[bytes] = []
        left = limit + 1
        while left > 0 and (part := os.read(descriptor, min(left, _CHUNK))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_beginning(descriptor: int, limit: int, *, close: bool = True) -> bytes:
    """Return at most ``limit`` bytes of what is open, where that is a regular file, and nothing of anything else.

    Args:
        descriptor: of a file, at its beginning.
        limit: bytes.
        close: whether the descriptor is closed, whatever happens.

    Raises:
        OSError: it can't be read.
    """
    try:
        # A file object of Python's refuses a directory, and leaves its descriptor open then.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        parts: list[bytes] = []
        while limit > 0 and (part := os.read(descriptor, min(limit, _CHUNK))):
            parts.append(part)
            limit -= len(part)
        return b"".join(parts)
    finally:
        if close:
            os.close(descriptor)

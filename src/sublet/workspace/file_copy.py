"""The content of one file for another: blocks are shared where the file system can, and holes stay holes."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import Final

FICLONE: Final = 0x40049409
_CHUNK: Final = 8 * 1024 * 1024


def copy_content(source: int, target: int, size: int) -> bool:
    """Give the empty file ``target`` the first ``size`` bytes of ``source``; return whether it shares its blocks.

    Holes stay holes. A file that has become shorter meanwhile gives a shorter copy.

    Raises:
        OSError: as ``write(2)``.
    """
    if share_content(source, target, size):
        return True
    copy = _copy_range
    offset = 0
    while offset < size:
        start, end = _data(source, offset, size)
        if start >= size:
            break
        while start < end:
            done = copy(source, target, start, end - start)
            if done == 0:  # the file ends here now
                return False
            start += done
        offset = end
    if os.fstat(target).st_size < size:
        os.ftruncate(target, min(size, os.fstat(source).st_size))
    return False


def share_content(source: int, target: int, size: int) -> bool:
    """Give the empty file ``target`` the first ``size`` bytes of ``source`` by sharing its blocks; False if it can't.

    Raises:
        OSError: as ``ftruncate(2)``.
    """
    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError:
        return False
    if os.fstat(target).st_size > size:
        os.ftruncate(target, size)
    return True


def _data(source: int, offset: int, size: int) -> tuple[int, int]:
    """Return where the next data at or after ``offset`` begins and ends; beyond ``size`` where there is none."""
    try:
        start = os.lseek(source, offset, os.SEEK_DATA)
        return start, min(size, os.lseek(source, start, os.SEEK_HOLE))
    except OSError as exc:
        if exc.errno == errno.ENXIO:
            return size, size
        return offset, size  # the file system tells no holes


def _copy_range(source: int, target: int, start: int, count: int) -> int:
    count = min(count, _CHUNK)
    try:
        return os.copy_file_range(source, target, count, start, start)
    except OSError as exc:
        if exc.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            raise
    data = os.pread(source, count, start)
    written = 0
    while written < len(data):
        written += os.pwrite(target, data[written:], start + written)
    return written

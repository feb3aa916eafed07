"""The flags of an inode that keep everybody, also root, from changing it (``chattr +i`` and ``+a``)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from typing import Final

IMMUTABLE: Final = 0x10
APPEND_ONLY: Final = 0x20
_FS_IOC_GETFLAGS: Final = 0x80086601
_FS_IOC_SETFLAGS: Final = 0x40086602


def set_flags(descriptor: int, *, add: int = 0, remove: int = 0) -> None:
    """Add and remove flags of an open file or directory. Does nothing where the file system or our rights forbid it."""
    with contextlib.suppress(OSError):
        flags = int(struct.unpack("l", fcntl.ioctl(descriptor, _FS_IOC_GETFLAGS, struct.pack("l", 0)))[0])
        wanted = (flags | add) & ~remove
        if wanted != flags:
            fcntl.ioctl(descriptor, _FS_IOC_SETFLAGS, struct.pack("l", wanted))


def make_changeable(directory: int, name: bytes) -> None:
    """Take the flags off one file or directory that keep it from being changed. Never blocks; never follows a link.

    Args:
        directory: the open directory that holds it.
        name: of a regular file or a directory; anything else is not opened by callers of this.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC
    with contextlib.suppress(OSError):
        descriptor = os.open(name, flags, dir_fd=directory)
        try:
            set_flags(descriptor, remove=IMMUTABLE | APPEND_ONLY)
        finally:
            os.close(descriptor)

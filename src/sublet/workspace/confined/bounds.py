"""What an executor may not make, since the audit could not look at it afterwards: too deep a name, or a shut one."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from sublet.workspace.viewpath import Parts, refused

MAX_DEPTH: Final = 200
"""Nested directories that are looked into; each costs an open descriptor while a tree is walked."""
_READ_FILE: Final = stat.S_IRUSR
_READ_DIRECTORY: Final = stat.S_IRUSR | stat.S_IXUSR


def check_depth(parts: Parts, *, directory: bool = False) -> None:
    """Refuse a change of a name that lies deeper than the audit reads; with ``directory`` a directory that would.

    Raises:
        OSError: ``ENAMETOOLONG``.
    """
    if len(parts) > MAX_DEPTH + (0 if directory else 1):
        raise refused(errno.ENAMETOOLONG)


def readable_file(mode: int) -> int:
    """Return the permissions of a new file so that its owner, who makes the audit, can read it."""
    return mode | _READ_FILE


def readable_directory(mode: int) -> int:
    """Return the permissions of a new directory so that its owner, who makes the audit, can look into it."""
    return mode | _READ_DIRECTORY


def check_readable(status: os.stat_result, mode: int) -> None:
    """Refuse permissions that take from the owner what the audit needs to look at a file or directory.

    Raises:
        OSError: ``EACCES``.
    """
    needed = _READ_DIRECTORY if stat.S_ISDIR(status.st_mode) else _READ_FILE
    if status.st_mode & needed & ~mode:
        raise refused(errno.EACCES)


def open_up(directory: int, name: bytes, status: os.stat_result) -> None:
    """Give the owner back what is needed to read a file or directory of a private tree, where an agent took it away.

    Args:
        directory: the open directory that holds it.
        name: its name there.
        status: its own, as it was listed.

    Raises:
        OSError: it belongs to somebody else.
    """
    if stat.S_ISLNK(status.st_mode):
        return
    needed = _READ_DIRECTORY if stat.S_ISDIR(status.st_mode) else _READ_FILE
    if not needed & ~status.st_mode:
        return
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        found = os.fstat(fd)
        if os.path.samestat(found, status):
            os.chmod(f"/proc/self/fd/{fd}", found.st_mode & 0o777 | needed)
    finally:
        os.close(fd)

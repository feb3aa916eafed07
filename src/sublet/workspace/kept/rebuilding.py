"""Builds the content that a large file had from the blocks that are kept and the file as the lease left it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from typing import Final

from sublet.disk.openat2 import choose_opener
from sublet.workspace.file_copy import copy_content
from sublet.workspace.kept import blocks as block_file
from sublet.workspace.kept.blocks import Mark
from sublet.workspace.kept.signature import Signature
from sublet.workspace.viewpath import refused

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class FilesAsLeft:
    """The files of a directory that are still as a lease left them.

    Args:
        root: a descriptor of the directory, which stays the caller's.
        paths: where a file may be that the lease has given another name.
    """

    def __init__(self, root: int, paths: Iterable[bytes]) -> None:
        self._root = root
        self._paths = paths
        self._open = choose_opener()
        self._by_inode: Mapping[int, bytes] | None = None

    def open(self, path: bytes, mark: Mark | None) -> int:
        """Open a file for reading.

        Args:
            path: what it is called, unless the lease has moved it.
            mark: which file it is, and how the lease left it; None where that is not known any more.

        Raises:
            OSError: ``ESTALE`` where somebody else has changed or removed it since; it can't be opened.
        """
        for name in (path, None):
            name = self._moved_to(mark) if name is None else name
            if name is None or mark is None:
                break
            try:
                fd = self._open(self._root, name, _READ)
            except OSError as exc:
                if exc.errno in (errno.EACCES, errno.EPERM):
                    raise
                continue
            if is_as_left(os.fstat(fd), mark):
                return fd
            os.close(fd)
        raise refused(errno.ESTALE)

    def _moved_to(self, mark: Mark | None) -> bytes | None:
        if self._by_inode is None:
            found: dict[int, bytes] = {}
            for path in self._paths:
                try:
                    fd = self._open(self._root, path, _LOOK)
                except OSError:
                    continue
                found[os.fstat(fd).st_ino] = path
                os.close(fd)
            self._by_inode = found
        return None if mark is None else self._by_inode.get(mark.inode)


def is_as_left(status: os.stat_result, mark: Mark) -> bool:
    """Tell whether what has this status is the file that is meant, as the lease left it."""
    regular = stat.S_ISREG(status.st_mode)
    return regular and status.st_ino == mark.inode and Signature.of(status) == mark.signature


def copy_as_left(files: FilesAsLeft, path: bytes, mark: Mark | None, size: int, target: int) -> None:
    """Copy the first ``size`` bytes of a file that is as the lease left it into the empty file ``target``.

    Raises:
        OSError: as ``FilesAsLeft.open``; ``ESTALE`` also where somebody changes it meanwhile; there is no room.
    """
    source = files.open(path, mark)
    try:
        copy_content(source, target, min(size, os.fstat(source).st_size))
        if mark is None or not is_as_left(os.fstat(source), mark):
            raise refused(errno.ESTALE)
    finally:
        os.close(source)


def rebuild(directory: int, number: int, files: FilesAsLeft, path: bytes, target: int) -> None:
    """Write the content that a file had into the empty file ``target``.

    Args:
        directory: a descriptor of the directory that keeps the blocks.
        number: that of the blocks.
        files: where the file may be now.
        path: what it was called.
        target: an open file.

    Raises:
        OSError: ``ESTALE`` where the blocks are not all, and somebody else has changed the file since the lease;
            ``EBADMSG`` where what is kept is damaged; there is no room, or something can't be read.
    """
    blocks = block_file.load(directory, number)
    if not blocks.is_complete:
        copy_as_left(files, path, blocks.mark, blocks.size, target)
    block_file.restore(directory, number, target)

"""Writing in the state directory so that a crash, also one of the machine, leaves the old or the new, never a part."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

MANY_FILES: Final = 64
"""More files than this are written out by syncing their file system."""


def write_durably(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, and return when it would survive a loss of power.

    Raises:
        OSError: it can't be written; what was there stays.
    """
    _write(path, (content,), sync=True)
    sync_directory(path.parent)


def write_durable_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write as ``write_durably`` does what comes piece by piece, of which nothing is kept in memory.

    Raises:
        OSError: as ``write_durably``.
    """
    _write(path, pieces, sync=True)
    sync_directory(path.parent)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, where it may be lost with the power: its reader can do without it.

    Raises:
        OSError: it can't be written; what was there stays.
    """
    _write(path, (content,), sync=False)


def write_whole_pieces(path: Path, pieces: Iterable[bytes]) -> None:
    """Write as ``write_whole`` does what comes piece by piece, of which nothing is kept in memory.

    Raises:
        OSError: as ``write_whole``.
    """
    _write(path, pieces, sync=False)


def _write(path: Path, pieces: Iterable[bytes], *, sync: bool) -> None:
    draft = path.with_name(f"{path.name}.new")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.writelines(pieces)
            file.flush()
            if sync:
                os.fsync(fd)
        draft.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def sync_directory(path: Path) -> None:
    """Return when the names in a directory would survive a loss of power."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Syncing:
    """Writes out files that belong together: the first few one by one, more by syncing their file system once."""

    def __init__(self) -> None:
        self._files = 0

    def add(self, fd: int) -> None:
        """Take note of a file that was written.

        Raises:
            OSError: it can't be written out.
        """
        self._files += 1
        if self._files <= MANY_FILES:
            os.fsync(fd)

    def finish(self, directory: int) -> None:
        """Return when all files, and their names in the open ``directory``, would survive a loss of power.

        Raises:
            OSError: they can't be written out.
        """
        if self._files > MANY_FILES and ctypes.CDLL(None, use_errno=True).syncfs(directory) != 0:
            os.sync()
        os.fsync(directory)

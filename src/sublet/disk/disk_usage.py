"""How much a directory takes on the disk that somebody else fills: of any depth, and without following a link."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet.disk.openat2 import DIRECTORY_PATH

BLOCK_BYTES = 512
"""Unit of ``st_blocks``, whatever the file system."""
MAX_PENDING_BYTES: Final = 8 << 20
"""Names of directories that are still to be entered; what is beyond is not counted."""
_LOOK_RIGHTS: Final = 0o500
_OWN_RIGHTS: Final = 0o700
_ENTER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class _Level:
    """A directory on the way down: which one it is, and the names of directories in it that were not entered yet."""

    identity: tuple[int, int]
    names: list[bytes]


@dataclass(frozen=True, slots=True)
class Measured:
    """The bytes that were counted; ``closed`` says that there may be more, in what could not be looked into."""

    size: int
    closed: bool


def disk_usage(directory: Path, *, enough: int | None = None) -> int:
    """Return the bytes that ``directory`` and what lies below it take, links not followed.

    What vanishes or can't be read meanwhile counts for nothing. Blocks: call it in a thread.

    Args:
        directory: where to begin; a file counts by itself.
        enough: stop counting beyond so many bytes.
    """
    return _measured(directory, _Count(enough)).size


def measure_opened(directory: Path, *, enough: int | None = None) -> Measured:
    """Return what ``directory`` takes, as ``disk_usage``, where somebody else may want to hide some of it.

    A directory of ours that its owner may not read or enter is given back the permissions for that. Blocks: call it in
    a thread.

    Args:
        directory: where to begin.
        enough: stop counting beyond so many bytes.
    """
    return _measured(directory, _Count(enough, open_up=True))


def _measured(directory: Path, count: _Count) -> Measured:
    try:
        status = os.stat(directory, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            return Measured(status.st_blocks * BLOCK_BYTES, closed=False)
        parent = os.open(directory, DIRECTORY_PATH | os.O_NOFOLLOW)
    except OSError:
        return Measured(0, closed=False)
    try:
        return Measured(count.run(parent), count.closed)
    finally:
        os.close(parent)


class _Count:
    def __init__(self, enough: int | None, *, open_up: bool = False) -> None:
        self.closed = False
        self._enough = enough
        self._open_up = open_up
        self._total = 0
        self._pending = 0

    def run(self, root: int) -> int:
        """Count below an open directory: one descriptor at a time, however deep it goes."""
        try:
            current = self._enter(root, b".")
        except OSError:
            return 0
        try:
            levels = [self._level(current)]
            while levels and not self._is_enough():
                if not levels[-1].names:
                    levels.pop()
                    if not levels or (above := _above(current, levels[-1].identity)) is None:
                        break  # done, or moved away meanwhile
                    os.close(current)
                    current = above
                    continue
                name = levels[-1].names.pop()
                self._pending -= len(name)
                try:
                    below = self._enter(current, name)
                except OSError:
                    continue
                os.close(current)
                current = below
                levels.append(self._level(current))
        except OSError:
            pass
        finally:
            os.close(current)
        return self._total

    def _is_enough(self) -> bool:
        return self._enough is not None and self._total > self._enough

    def _enter(self, directory: int, name: bytes) -> int:
        """Open a directory to count it.

        Raises:
            OSError: it is not there, or no directory; it can't be read, which is noted.
        """
        try:
            try:
                return os.open(name, _ENTER, dir_fd=directory)
            except PermissionError:
                if not self._open_up:
                    raise
            fd = os.dup(directory) if name == b"." else os.open(name, DIRECTORY_PATH | os.O_NOFOLLOW, dir_fd=directory)
            try:
                os.chmod(f"/proc/self/fd/{fd}", os.fstat(fd).st_mode & 0o7777 | _OWN_RIGHTS)
            finally:
                os.close(fd)
            return os.open(name, _ENTER, dir_fd=directory)
        except PermissionError:
            self.closed = True
            raise

    def _level(self, fd: int) -> _Level:
        status = os.fstat(fd)
        if self._open_up and _LOOK_RIGHTS & ~status.st_mode:
            with suppress(OSError):  # it may be somebody else's, and then perhaps others can look into it
                os.fchmod(fd, status.st_mode & 0o7777 | _OWN_RIGHTS)
        level = _Level((status.st_dev, status.st_ino), [])
        with os.scandir(fd) as entries:
            for entry in entries:
                try:
                    self._total += entry.stat(follow_symlinks=False).st_blocks * BLOCK_BYTES
                    is_directory = entry.is_dir(follow_symlinks=False)
                except PermissionError:
                    self.closed = True
                    continue
                except OSError:
                    continue
                if self._is_enough():
                    break
                name = os.fsencode(entry.name)
                if not is_directory:
                    continue
                if self._pending + len(name) > MAX_PENDING_BYTES:
                    self.closed = True
                    continue
                level.names.append(name)
                self._pending += len(name)
        return level


def _above(fd: int, identity: tuple[int, int]) -> int | None:
    """Return a descriptor of the directory above, where that is still the one that was come from."""
    above = os.open("..", _ENTER, dir_fd=fd)
    status = os.fstat(above)
    if (status.st_dev, status.st_ino) == identity:
        return above
    os.close(above)
    return None

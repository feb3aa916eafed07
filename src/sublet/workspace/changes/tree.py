"""One directory that is compared and changed name by name, beneath its descriptor and following no link."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from sublet.disk.openat2 import DIRECTORY_PATH, choose_opener, open_real
from sublet.workspace.audit.snapshot import read_record
from sublet.workspace.changes.record import Content

Kind = Literal["absent", "file", "link", "directory", "special", "blocked", "closed"]
"""``blocked``: a name above it is no directory. ``closed``: it can't be looked at, or something is mounted there."""

_BLOCKED: Final = frozenset({errno.ENOTDIR, errno.ELOOP})
SPECIAL_BITS: Final = 0o7777
MAX_LOOK_BYTES: Final = 64 << 30
"""A file that is larger can't be looked at. Snapshots read less; here somebody asks for this file, and waits."""


@dataclass(frozen=True, slots=True)
class PathContents:
    """What is at a path. ``content`` is None for what is neither file nor link."""

    kind: Kind
    content: Content | None = None
    permissions: int = 0
    inode: int = 0
    uid: int = 0
    gid: int = 0
    size: int = 0
    modified_ns: int = 0
    reason: str = ""


ABSENT: Final = PathContents("absent")


class Tree:
    """The directory that a result is applied to.

    Args:
        root: its real path.
        salt: names what is too large to be kept in snapshots, as those snapshots do.

    Raises:
        OSError: it can't be opened.
    """

    def __init__(self, root: Path, salt: bytes) -> None:
        self.fd = open_real(root, DIRECTORY_PATH)
        self.salt = salt
        self._open = choose_opener()

    def close(self) -> None:
        """Close the directory."""
        os.close(self.fd)

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Open the directory that holds ``path``, for as long as the context lasts; also give the last name.

        Raises:
            OSError: ``ENOENT``, ``ENOTDIR`` or ``ELOOP`` where there is no such directory, ``EXDEV`` for a mount.
        """
        above, _, name = path.rpartition(b"/")
        fd = self._open(self.fd, above or b".", DIRECTORY_PATH)
        try:
            yield fd, name
        finally:
            os.close(fd)

    def look(self, path: bytes) -> PathContents:
        """Return what is at ``path``; contents are read."""
        try:
            with self.parent(path) as (directory, name):
                return self.look_in(directory, name)
        except FileNotFoundError:
            return ABSENT
        except OSError as exc:
            if exc.errno in _BLOCKED:
                return PathContents("blocked", reason=os.strerror(exc.errno))
            return PathContents("closed", reason=exc.strerror or "")

    def look_in(self, directory: int, name: bytes) -> PathContents:
        """Return what is at ``name`` in an open directory."""
        try:
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return ABSENT
        if stat.S_ISDIR(status.st_mode):
            return _found("directory", None, status)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISLNK(status.st_mode):
            return _found("special", None, status)
        try:
            record = read_record(directory, name, self.salt, limit=MAX_LOOK_BYTES)
        except FileNotFoundError:
            return ABSENT
        except OSError as exc:
            return PathContents("closed", reason=exc.strerror or "")
        content = Content.of(record.mode, record.blob)
        return _found("link" if content.link else "file", content, status)

    def is_there(self, path: bytes) -> bool:
        """Tell whether anything is at ``path``; what it is, is not looked at."""
        try:
            with self.parent(path) as (directory, name):
                os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return False
        except OSError as exc:
            return exc.errno not in _BLOCKED
        return True

    def blocker(self, path: bytes) -> bytes | None:
        """Return the first name above ``path`` that is there and no directory, or None."""
        with contextlib.suppress(OSError), self.parent(path):
            return None  # all of them are directories
        parts = path.split(b"/")
        for end in range(1, len(parts)):
            above = b"/".join(parts[:end])
            try:
                with self.parent(above) as (directory, name):
                    if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                        return above
            except FileNotFoundError:
                return None
            except OSError:
                return above
        return None

    def make_directories(self, path: bytes) -> None:
        """Make a directory and those above it, as far as they are missing.

        Raises:
            OSError: as ``mkdir(2)``; ``ENOTDIR`` or ``ELOOP`` for what is no directory.
        """
        parts = [part for part in path.split(b"/") if part]
        for end in range(1, len(parts) + 1):
            with self.parent(b"/".join(parts[:end])) as (directory, name), contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=directory)

    def sync(self, path: bytes) -> None:
        """Return when the names in a directory would survive a loss of power.

        Raises:
            OSError: it is not there.
        """
        fd = self._open(self.fd, path or b".", os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def nearest(self, path: bytes) -> os.stat_result:
        """Return the status of the nearest directory above ``path`` that is there."""
        with self.open_nearest(path) as fd:
            return os.fstat(fd)

    @contextlib.contextmanager
    def open_nearest(self, path: bytes) -> Iterator[int]:
        """Open the nearest directory above ``path`` that is there, to look at it, for as long as the context lasts."""
        above = path.rpartition(b"/")[0]
        fd = -1
        while above and fd < 0:
            with contextlib.suppress(OSError):
                fd = self._open(self.fd, above, DIRECTORY_PATH)
            above = above.rpartition(b"/")[0]
        if fd < 0:
            fd = self._open(self.fd, b".", DIRECTORY_PATH)
        try:
            yield fd
        finally:
            os.close(fd)

    def names(self, path: bytes) -> list[bytes]:
        """Return the names in a directory, hidden ones as well.

        Raises:
            OSError: it can't be read.
        """
        fd = self._open(self.fd, path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            return [os.fsencode(name) for name in os.listdir(fd)]
        finally:
            os.close(fd)

    def read(self, path: bytes, limit: int) -> bytes | None:
        """Return the content of a file, or None where it is larger than ``limit`` bytes.

        Raises:
            OSError: it can't be read.
        """
        with self.parent(path) as (directory, name):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
            with open(fd, "rb") as file:
                content = file.read(limit + 1)
        return None if len(content) > limit else content


def _found(kind: Kind, content: Content | None, status: os.stat_result) -> PathContents:
    return PathContents(
        kind,
        content,
        status.st_mode & SPECIAL_BITS,
        status.st_ino,
        status.st_uid,
        status.st_gid,
        status.st_size,
        status.st_mtime_ns,
    )

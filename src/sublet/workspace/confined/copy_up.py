"""A file of its own for a name that shares one with names outside of the view, before the lease changes it.

The other names keep what they have, content and mode: a store that hard links into the directory goes on working.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from typing import Final

from sublet.disk.openat2 import exchange
from sublet.workspace.file_copy import copy_content
from sublet.workspace.viewpath import refused

QUICK_BYTES: Final = 1 << 20
"""Bytes that are copied where everybody waits; more are copied in a thread."""
PREFIX: Final = b".sublet-own-"
"""Begins the name under which a copy is put beside the file for a moment; rules hide it."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NO_UNNAMED: Final = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
_NO_EXCHANGE: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM})
_PERMISSIONS: Final = 0o777


class Copy:
    """A copy of one file that is not put in its place yet. It must be ``put`` or ``discard``ed, once.

    Args:
        directory: descriptor of the directory, which this object owns from now on.
        name: the file in it.
        source: the status of the file.
        keep: how many of its first bytes the copy gets.

    Raises:
        OSError: ``ESTALE`` where the name leads to another file now; it can't be read; there is no room.
    """

    def __init__(self, directory: int, name: bytes, source: os.stat_result, keep: int) -> None:
        self._directory = directory
        self._fd, self._beside = -1, b""
        try:
            original = os.open(name, _READ, dir_fd=directory)
            try:
                if not os.path.samestat(os.fstat(original), source):
                    raise refused(errno.ESTALE)
                self._fd, self._beside = _made(directory)
                copy_content(original, self._fd, keep)
                _dress(original, self._fd, source)
            finally:
                os.close(original)
        except BaseException:
            self.discard()
            raise

    def put(self, name: bytes, source: os.stat_result) -> None:
        """Put the copy in the place of the file under this name, in one step.

        Raises:
            OSError: ``ESTALE`` where the name leads to another file now, which then stays.
        """
        try:
            if not self._beside:
                beside = _beside()
                os.link(f"/proc/self/fd/{self._fd}", beside, dst_dir_fd=self._directory, follow_symlinks=True)
                self._beside = beside
            _change_places(self._directory, name, source, self._beside)
        finally:
            self.discard()

    def discard(self) -> None:
        """Let go of the copy. Idempotent."""
        if self._directory < 0:
            return
        if self._beside:
            with suppress(OSError):
                os.unlink(self._beside, dir_fd=self._directory)
        if self._fd >= 0:
            os.close(self._fd)
        os.close(self._directory)
        self._fd = self._directory = -1


def copy_link(directory: int, name: bytes, source: os.stat_result) -> None:
    """Make a symbolic link that has several names one of its own.

    Raises:
        OSError: as ``put_copy``.
    """
    beside = _beside()
    os.symlink(os.readlink(name, dir_fd=directory), beside, dir_fd=directory)
    _change_places(directory, name, source, beside)


def _change_places(directory: int, name: bytes, source: os.stat_result, beside: bytes) -> None:
    try:
        try:
            exchange(directory, beside, directory, name)
        except OSError as exc:
            if exc.errno not in _NO_EXCHANGE:
                raise
            _check_same(directory, name, source)
            os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
            return
        try:
            _check_same(directory, beside, source)
        except OSError:
            exchange(directory, beside, directory, name)  # somebody has put another file there meanwhile
            raise
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=directory)


def _check_same(directory: int, name: bytes, source: os.stat_result) -> None:
    if not os.path.samestat(os.stat(name, dir_fd=directory, follow_symlinks=False), source):
        raise refused(errno.ESTALE)


def _made(directory: int) -> tuple[int, bytes]:
    """Return a new file, and its name where the file system can't make one without."""
    try:
        # With write access for us, whatever the mode of the original is.
        return os.open(b".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600, dir_fd=directory), b""
    except OSError as exc:
        if exc.errno not in _NO_UNNAMED:
            raise
    beside = _beside()
    return os.open(beside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory), beside


def _beside() -> bytes:
    return PREFIX + secrets.token_hex(8).encode()


def _dress(original: int, copy: int, source: os.stat_result) -> None:
    with suppress(OSError):  # only root gives files away
        os.fchown(copy, source.st_uid, source.st_gid)
    with suppress(OSError):
        for attribute in os.listxattr(original):
            with suppress(OSError):
                os.setxattr(copy, attribute, os.getxattr(original, attribute))
    os.fchmod(copy, stat.S_IMODE(source.st_mode) & _PERMISSIONS)
    os.utime(copy, ns=(source.st_atime_ns, source.st_mtime_ns))

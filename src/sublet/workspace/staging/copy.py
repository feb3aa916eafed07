"""A private copy of exactly what a lease exports: blocks shared where the file system can, else copied (DESIGN 4.7)."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Final

from sublet.disk.openat2 import DIRECTORY_PATH, choose_opener, open_real
from sublet.policy.limits import AdmissionLimits
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.text import clean_name
from sublet.workspace.export import ViewRules
from sublet.workspace.file_copy import FICLONE
from sublet.workspace.file_copy import copy_content as copy_content
from sublet.workspace.view.walk import Budget, Directory, Unread, WalkOverrunError, open_root, walk

MAX_COPY_SECONDS: Final = 300.0
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_PERMISSIONS: Final = 0o777


class PlainCopyTooLargeError(Exception):
    """A copy whose blocks can't be shared went beyond what is copied plainly while there is another way."""


def copy_tree(
    root: Path, target: Path, rules: ViewRules, limits: AdmissionLimits, max_plain_bytes: int | None = None
) -> bool:
    """Copy what a lease of ``root`` exports into the new directory ``target``, and return whether blocks are shared.

    Hidden names, mounts and special files are left out. Modes, times, links and holes are kept. Of a file that is
    written meanwhile the copy has some state; what counts as the baseline is the copy, whatever the file was.

    Args:
        root: a real path.
        target: a directory that does not exist; its parent does.
        rules: which names are exported.
        limits: bounds on bytes and files, again here since the tree may have grown since it was admitted.
        max_plain_bytes: bound on bytes whose blocks can't be shared, or None.

    Raises:
        PlainCopyTooLargeError: more than ``max_plain_bytes``, or than there is room for where that is given.
        SubletError: ``WORKSPACE_NOT_FOUND``, ``WORKSPACE_INVALID`` for what can't be read, ``WORKSPACE_TOO_LARGE``,
            ``UNAVAILABLE`` for a full disk.
    """
    try:
        root_fd = open_root(root)
    except OSError as exc:
        raise _unreadable(root, (), exc.strerror or "", gone=isinstance(exc, FileNotFoundError)) from None
    try:
        target.mkdir(mode=0o700)
        return _Copy(root, target, limits, max_plain_bytes).run(root_fd, rules)
    except WalkOverrunError as exc:
        raise _too_large(root, str(exc)) from None
    except OSError as exc:
        if max_plain_bytes is not None and exc.errno in (errno.ENOSPC, errno.EDQUOT):
            raise PlainCopyTooLargeError from None
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"the private copy of {clean_name(os.fsencode(root))} can't be written: {exc.strerror}",
            "Free space on the disk that holds the state directory, or delegate without staging.",
        ) from None
    finally:
        os.close(root_fd)


class _Copy:
    """One copy under way. Directory modes and times are set at the end, when nothing is written into them any more."""

    def __init__(self, root: Path, target: Path, limits: AdmissionLimits, max_plain_bytes: int | None) -> None:
        self._root = root
        self._max_plain = max_plain_bytes
        self._plain = 0
        self._limits = limits
        self._target = open_real(Path(os.path.realpath(target)), DIRECTORY_PATH)
        self._open = choose_opener()
        self._bytes = self._files = 0
        self._deadline = time.monotonic() + MAX_COPY_SECONDS
        self._cloned = True
        self._any = False
        self._finish: list[tuple[bytes, os.stat_result]] = []

    def run(self, root_fd: int, rules: ViewRules) -> bool:
        try:
            self._finish.append((b".", os.fstat(root_fd)))
            for found in walk(root_fd, rules, Budget(self._limits.max_files * 2, MAX_COPY_SECONDS)):
                if isinstance(found, Unread):
                    raise _unreadable(self._root, found.parts, found.reason)
                self._directory(found)
            for path, status in reversed(self._finish):
                fd = self._open(self._target, path, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    _dress(fd, status)
                finally:
                    os.close(fd)
        finally:
            os.close(self._target)
        return self._cloned and self._any

    def _directory(self, directory: Directory) -> None:
        into = self._open(self._target, b"/".join(directory.parts) or b".", DIRECTORY_PATH)
        try:
            for name, status in directory.entries:
                parts = (*directory.parts, name)
                try:
                    self._entry(directory.fd, into, name, parts, status)
                except FileNotFoundError:
                    continue  # removed since its directory was listed
                if time.monotonic() > self._deadline:
                    raise WalkOverrunError(f"more than can be copied within {MAX_COPY_SECONDS:g} s")
        finally:
            os.close(into)

    def _entry(self, source: int, into: int, name: bytes, parts: tuple[bytes, ...], status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            os.mkdir(name, 0o700, dir_fd=into)
            self._finish.append((b"/".join(parts), status))
        elif stat.S_ISLNK(status.st_mode):
            self._count(0)
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=into)
            os.utime(name, ns=(status.st_atime_ns, status.st_mtime_ns), dir_fd=into, follow_symlinks=False)
        elif stat.S_ISREG(status.st_mode):
            self._file(source, into, name, parts)

    def _file(self, source: int, into: int, name: bytes, parts: tuple[bytes, ...]) -> None:
        try:
            original = os.open(name, _READ, dir_fd=source)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise _unreadable(self._root, parts, exc.strerror or "") from None
        try:
            status = os.fstat(original)
            if not stat.S_ISREG(status.st_mode):
                return  # replaced since its directory was listed
            if status.st_size > self._limits.max_file_bytes:
                raise _too_large(self._root, f"a file of {status.st_size:,} bytes")
            self._count(status.st_size)
            if self._max_plain is not None and not self._cloned and self._plain + status.st_size > self._max_plain:
                raise PlainCopyTooLargeError
            copy = os.open(name, _CREATE, 0o600, dir_fd=into)
            try:
                if not copy_content(original, copy, status.st_size):
                    self._cloned = False
                    self._plain += status.st_size
                self._any = True
                _dress(copy, status)
            finally:
                os.close(copy)
        finally:
            os.close(original)

    def _count(self, size: int) -> None:
        self._bytes += size
        self._files += 1
        if self._bytes > self._limits.max_total_bytes:
            raise _too_large(self._root, f"more than {self._limits.max_total_bytes:,} bytes")
        if self._files > self._limits.max_files:
            raise _too_large(self._root, f"more than {self._limits.max_files:,} files")


def shares_blocks(directory: Path) -> bool:
    """Tell whether files in ``directory`` can share their blocks (reflink), as tried there.

    Raises:
        OSError: nothing can be written there.
    """
    with tempfile.TemporaryFile(dir=directory) as source, tempfile.TemporaryFile(dir=directory) as target:
        source.write(b"x")
        source.flush()
        try:
            fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
        except OSError:
            return False
        return True


def _dress(fd: int, status: os.stat_result) -> None:
    """Give ``fd`` the permissions and times of ``status``; setuid and the like stay behind."""
    os.fchmod(fd, status.st_mode & _PERMISSIONS)
    os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))


def _unreadable(root: Path, parts: tuple[bytes, ...], reason: str, *, gone: bool = False) -> SubletError:
    return SubletError(
        ErrorCode.WORKSPACE_NOT_FOUND if gone else ErrorCode.WORKSPACE_INVALID,
        f"{clean_name(b'/'.join((os.fsencode(root), *parts)))} can't be copied for a staged result: {reason}",
        "Leave it out with --exclude, or make it readable.",
    )


def _too_large(root: Path, what: str) -> SubletError:
    return SubletError(
        ErrorCode.WORKSPACE_TOO_LARGE,
        f"{clean_name(os.fsencode(root))} holds {what}, too much for a private copy",
        "Lend a smaller subdirectory, or delegate without staging.",
    )

"""The SFTP operations that change something; a read-only session has none of them."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from sublet.workspace.confined.file import WriteFile, process_umask
from sublet.workspace.export import LeaseUsage
from sublet.workspace.git.take import Looking
from sublet.workspace.sftp import wire
from sublet.workspace.sftp.handles import Handles
from sublet.workspace.sftp.reply import Operation, Reply, SlowReply, ThreadWork
from sublet.workspace.sftp.wire import MAX_OFFSET, Attributes, Op, OpenFlag, Reader, Status
from sublet.workspace.view.export_view import WritableView
from sublet.workspace.viewpath import refused

WRITE_OPS: Final = frozenset({Op.WRITE, Op.SETSTAT, Op.FSETSTAT, Op.REMOVE, Op.MKDIR, Op.RMDIR, Op.RENAME, Op.SYMLINK})
WRITE_EXTENSIONS: Final = frozenset(
    {b"posix-rename@openssh.com", b"hardlink@openssh.com", b"fsync@openssh.com", b"lsetstat@openssh.com"}
)
_NEW_FILE_MODE: Final = 0o666
_NEW_DIRECTORY_MODE: Final = 0o777
"""Modes where the client gives none. The daemon's umask applies to them alone: a client has its own (case D08)."""


class WriteOps:
    """The mutating operations of one session on a view that can be changed."""

    def __init__(self, view: WritableView, usage: LeaseUsage, handles: Handles) -> None:
        self._view = view
        self._usage = usage
        self._handles = handles
        self._umask = process_umask()

    def operations(self) -> dict[int, Operation]:
        """Return the operations by packet type; exactly ``WRITE_OPS``."""
        return {
            Op.WRITE: self._write,
            Op.SETSTAT: self._setstat,
            Op.FSETSTAT: self._fsetstat,
            Op.REMOVE: self._remove,
            Op.MKDIR: self._mkdir,
            Op.RMDIR: self._rmdir,
            Op.RENAME: self._rename,
            Op.SYMLINK: self._symlink,
        }

    def extensions(self) -> dict[bytes, Operation]:
        """Return the extended operations by name; exactly ``WRITE_EXTENSIONS``."""
        return {
            b"posix-rename@openssh.com": self._posix_rename,
            b"hardlink@openssh.com": self._hardlink,
            b"fsync@openssh.com": self._fsync,
            b"lsetstat@openssh.com": self._lsetstat,
        }

    def open(self, path: bytes, flags: int, attributes: Attributes) -> WriteFile:
        """Open a file for writing with the bits of an OPEN request.

        Raises:
            OSError: as ``WritableFs.open_write``; ``EINVAL`` for TRUNC, CREAT, EXCL or APPEND without WRITE.
        """
        if not flags & OpenFlag.WRITE:
            raise refused(errno.EINVAL)
        system = os.O_RDWR if flags & OpenFlag.READ else os.O_WRONLY
        for bit, flag in (
            (OpenFlag.APPEND, os.O_APPEND),
            (OpenFlag.CREAT, os.O_CREAT),
            (OpenFlag.TRUNC, os.O_TRUNC),
            (OpenFlag.EXCL, os.O_EXCL),
        ):
            if flags & bit:
                system |= flag
        mode = _NEW_FILE_MODE & ~self._umask if attributes.permissions is None else attributes.permissions
        return self._view.open_write(path, system, mode)

    def _write(self, request: int, fields: Reader) -> bytes:
        file = self._handles.writable(fields.string())
        offset, data = fields.u64(), fields.view()
        if offset > MAX_OFFSET - len(data):
            raise refused(errno.EFBIG)
        file.write(data, offset)
        self._usage.bytes_written += len(data)
        return wire.pack_status(request, Status.OK)

    def _setstat(self, request: int, fields: Reader) -> bytes:
        return self._set_by_path(request, fields, follow=True)

    def _lsetstat(self, request: int, fields: Reader) -> bytes:
        return self._set_by_path(request, fields, follow=False)

    def _set_by_path(self, request: int, fields: Reader, *, follow: bool) -> bytes:
        path, a = fields.path(), _checked(fields.attributes())
        self._view.set_attributes(path, size=a.size, mode=a.permissions, times=a.times, follow=follow)
        return wire.pack_status(request, Status.OK)

    def _fsetstat(self, request: int, fields: Reader) -> bytes:
        file, a = self._handles.writable(fields.string()), _checked(fields.attributes())
        if a.size is not None:
            file.truncate(a.size)
        if a.permissions is not None:
            file.set_mode(a.permissions)
        if a.times is not None:
            file.set_times(a.times)
        return wire.pack_status(request, Status.OK)

    def _remove(self, request: int, fields: Reader) -> bytes:
        self._view.remove(fields.path())
        return wire.pack_status(request, Status.OK)

    def _mkdir(self, request: int, fields: Reader) -> bytes:
        path, mode = fields.path(), fields.attributes().permissions
        self._view.mkdir(path, _NEW_DIRECTORY_MODE & ~self._umask if mode is None else mode)
        return wire.pack_status(request, Status.OK)

    def _rmdir(self, request: int, fields: Reader) -> bytes:
        self._view.rmdir(fields.path())
        return wire.pack_status(request, Status.OK)

    def _rename(self, request: int, fields: Reader) -> Reply:
        return self._move(request, fields.path(), fields.path(), replace=False)

    def _posix_rename(self, request: int, fields: Reader) -> Reply:
        return self._move(request, fields.path(), fields.path(), replace=True)

    def _symlink(self, request: int, fields: Reader) -> bytes:
        # OpenSSH took target and link the other way round than the draft, and every client followed
        target, path = fields.path(), fields.path()
        self._view.symlink(target, path)
        return wire.pack_status(request, Status.OK)

    def _hardlink(self, request: int, fields: Reader) -> Reply:
        old, new = fields.path(), fields.path()
        looking = self._view.look(old, new)

        def finish() -> bytes:
            self._view.link(old, new, looking)
            return wire.pack_status(request, Status.OK)

        return finish() if looking is None else SlowReply(ThreadWork(_looked(looking), looking.drop), finish)

    def _move(self, request: int, old: bytes, new: bytes, *, replace: bool) -> Reply:
        """Rename; a large file is looked at off the loop before, and so is a large directory (``NotKnownYet``)."""
        looking = self._view.look(old, new)

        def finish() -> bytes:
            self._view.rename(old, new, looking, replace=replace)
            return wire.pack_status(request, Status.OK)

        return finish() if looking is None else SlowReply(ThreadWork(_looked(looking), looking.drop), finish)

    def _fsync(self, request: int, fields: Reader) -> Reply:
        # The handle may be closed meanwhile and its number taken by another file, hence a descriptor of its own.
        failed = self._usage.quota.failed
        fd = self._handles.real_file(fields.string()).duplicate()
        return SlowReply(ThreadWork(_syncing(request, fd, failed), partial(os.close, fd)))


def _checked(attributes: Attributes) -> Attributes:
    if attributes.size is not None and attributes.size > MAX_OFFSET:
        raise refused(errno.EFBIG)
    return attributes


def _looked(looking: Looking) -> Callable[[], bytes]:
    def run() -> bytes:
        with suppress(OSError):  # raised once more by what comes after, which tells why
            looking.look()
        return b""

    return run


def _syncing(request: int, fd: int, failed: Callable[[OSError], None]) -> Callable[[], bytes]:
    def run() -> bytes:
        try:
            os.fsync(fd)
        except OSError as exc:
            failed(exc)
            return wire.pack_error(request, exc)
        finally:
            os.close(fd)
        return wire.pack_status(request, Status.OK)

    return run

"""The SFTP version 3 wire format (draft-ietf-secsh-filexfer-02 and OpenSSH's PROTOCOL): numbers, reader, packers."""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from sublet.workspace.viewpath import MAX_PATH_BYTES, refused

VERSION: Final = 3
MAX_PACKET: Final = 260 * 1024
"""Bytes of one packet without its length; the bound that OpenSSH's clients keep, and some room."""
MAX_READ: Final = 256 * 1024 - 1024
MAX_WRITE: Final = 256 * 1024 - 1024
MAX_OFFSET: Final = (1 << 63) - 1
MAX_EXTENDED_PAIRS: Final = 16
"""Extended attributes that are read over in one request; no client sends any."""


class Op(IntEnum):
    """Packet types that a client sends."""

    INIT = 1
    OPEN = 3
    CLOSE = 4
    READ = 5
    WRITE = 6
    LSTAT = 7
    FSTAT = 8
    SETSTAT = 9
    FSETSTAT = 10
    OPENDIR = 11
    READDIR = 12
    REMOVE = 13
    MKDIR = 14
    RMDIR = 15
    REALPATH = 16
    STAT = 17
    RENAME = 18
    READLINK = 19
    SYMLINK = 20
    EXTENDED = 200


class ReplyType(IntEnum):
    """Packet types that a server sends."""

    VERSION = 2
    STATUS = 101
    HANDLE = 102
    DATA = 103
    NAME = 104
    ATTRS = 105
    EXTENDED_REPLY = 201


class Status(IntEnum):
    """Codes of a STATUS answer.

    Version 3 ends at 8. Two of the others are of version 6, the last of none, and they are sent on purpose: sshfs
    shows FAILURE as EPERM, which misleads, and every code that it does not know as EIO.
    """

    OK = 0
    EOF = 1
    NO_SUCH_FILE = 2
    PERMISSION_DENIED = 3
    FAILURE = 4
    BAD_MESSAGE = 5
    NO_CONNECTION = 6
    OP_UNSUPPORTED = 8
    NO_SPACE = 14
    QUOTA_EXCEEDED = 15
    IO_ERROR = 255


class OpenFlag(IntEnum):
    """Bits of an OPEN request."""

    READ = 0x01
    WRITE = 0x02
    APPEND = 0x04
    CREAT = 0x08
    TRUNC = 0x10
    EXCL = 0x20


_SIZE: Final = 0x1
_OWNER: Final = 0x2
_PERMISSIONS: Final = 0x4
_TIMES: Final = 0x8
_EXTENDED_ATTRIBUTES: Final = 0x80000000

_STATUS_BY_ERRNO: Final = {
    errno.ENOENT: Status.NO_SUCH_FILE,
    errno.ENOTDIR: Status.NO_SUCH_FILE,
    errno.EACCES: Status.PERMISSION_DENIED,
    errno.EPERM: Status.PERMISSION_DENIED,
    errno.EROFS: Status.PERMISSION_DENIED,
    errno.ELOOP: Status.PERMISSION_DENIED,
    errno.EINVAL: Status.BAD_MESSAGE,
    errno.ENAMETOOLONG: Status.BAD_MESSAGE,
    errno.EOPNOTSUPP: Status.OP_UNSUPPORTED,
    errno.ENOSPC: Status.NO_SPACE,
    errno.EDQUOT: Status.QUOTA_EXCEEDED,
    errno.EIO: Status.IO_ERROR,
    # sshfs turns FAILURE of a rename, and only that, into EXDEV (workaround=renamexdev), so that mv copies
    errno.EXDEV: Status.FAILURE,
}

_U32 = struct.Struct(">I")
_HEAD = struct.Struct(">IBI")
_STATUS_HEAD = struct.Struct(">IBIII")
_DATA_HEAD = struct.Struct(">IBII")
_ATTRS = struct.Struct(">IBIIQIIIII")
_ENTRY_TAIL = struct.Struct(">IIQIIIII")  # an empty long name, then the attributes
_STATVFS = struct.Struct(">11Q")
_LIMITS = struct.Struct(">4Q")
_HAS_ALL: Final = _SIZE | _OWNER | _PERMISSIONS | _TIMES
_MASK: Final = 0xFFFFFFFF


class MalformedPacket(Exception):
    """A packet whose fields do not fit its length; answered with BAD_MESSAGE."""


class Attributes(NamedTuple):
    """The attributes that a client set, None where it said nothing; times are (access, modification) in seconds."""

    size: int | None
    owner: tuple[int, int] | None
    permissions: int | None
    times: tuple[int, int] | None


class Reader:
    """Fields of one packet, in order.

    Args:
        data: holds the packet.
        offset: where its first field starts.
        end: where the packet ends.
    """

    __slots__ = ("_data", "_end", "_offset")

    def __init__(self, data: bytes, offset: int, end: int) -> None:
        self._data = data
        self._offset = offset
        self._end = end

    def u32(self) -> int:
        """Return an unsigned 32-bit number.

        Raises:
            MalformedPacket: the packet is too short; so do all other readers.
        """
        start = self._offset
        self._offset = end = start + 4
        if end > self._end:
            raise MalformedPacket
        return int.from_bytes(self._data[start:end], "big")

    def u64(self) -> int:
        """Return an unsigned 64-bit number."""
        start = self._offset
        self._offset = end = start + 8
        if end > self._end:
            raise MalformedPacket
        return int.from_bytes(self._data[start:end], "big")

    def string(self) -> bytes:
        """Return the string that comes next: its length in four bytes, then as many bytes of any kind.

        Raises:
            MalformedPacket: the packet ends before.
        """
        size = self.u32()
        start = self._offset
        self._offset = end = start + size
        if end > self._end:
            raise MalformedPacket
        return self._data[start:end]

    def path(self) -> bytes:
        """Return a string that is a path or a link's target.

        Raises:
            OSError: ``ENAMETOOLONG`` beyond ``MAX_PATH_BYTES``.
        """
        path = self.string()
        if len(path) > MAX_PATH_BYTES:
            raise refused(errno.ENAMETOOLONG)
        return path

    def view(self) -> memoryview:
        """Return a string without copying it."""
        size = self.u32()
        start = self._offset
        self._offset = end = start + size
        if end > self._end:
            raise MalformedPacket
        return memoryview(self._data)[start:end]

    def attributes(self) -> Attributes:
        """Return an ATTRS structure; extended attributes are read over."""
        flags = self.u32()
        size = self.u64() if flags & _SIZE else None
        owner = (self.u32(), self.u32()) if flags & _OWNER else None
        permissions = self.u32() if flags & _PERMISSIONS else None
        times = (self.u32(), self.u32()) if flags & _TIMES else None
        if flags & _EXTENDED_ATTRIBUTES:
            pairs = self.u32()
            if pairs > MAX_EXTENDED_PAIRS:
                raise MalformedPacket
            for _ in range(pairs):
                self.view()
                self.view()
        return Attributes(size, owner, permissions, times)


def pack_version(extensions: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Return VERSION with the extensions' names and versions."""
    body = b"".join(_string(name) + _string(version) for name, version in extensions)
    return _U32.pack(5 + len(body)) + bytes((ReplyType.VERSION,)) + _U32.pack(VERSION) + body


def pack_status(request: int, code: Status, text: bytes = b"") -> bytes:
    """Return STATUS, which answers ``request`` with a code and a text, in no language."""
    return _STATUS_HEAD.pack(17 + len(text), ReplyType.STATUS, request, code, len(text)) + text + b"\0\0\0\0"


def pack_error(request: int, error: OSError) -> bytes:
    """Return STATUS for a system error, in the system's own words for its number: never a path."""
    number = error.errno or 0
    return pack_status(request, _STATUS_BY_ERRNO.get(number, Status.FAILURE), os.strerror(number).encode())


def pack_handle(request: int, handle: bytes) -> bytes:
    """Return HANDLE, by which the client names what OPEN or OPENDIR has opened."""
    return _HEAD.pack(9 + len(handle), ReplyType.HANDLE, request) + _string(handle)


def pack_data(request: int, data: bytes) -> bytes:
    """Return DATA, the bytes that READ has asked for."""
    return _DATA_HEAD.pack(9 + len(data), ReplyType.DATA, request, len(data)) + data


def pack_attrs(request: int, status: os.stat_result) -> bytes:
    """Return ATTRS: size in bytes, owner, mode, and both times in whole seconds, which is all of version 3."""
    mode, _, _, _, uid, gid, size, accessed, modified, _ = status
    times = int(accessed) & _MASK, int(modified) & _MASK
    return _ATTRS.pack(37, ReplyType.ATTRS, request, _HAS_ALL, size, uid, gid, mode, *times)


def pack_name(request: int, name: bytes) -> bytes:
    """Return NAME with one name and no attributes, as REALPATH and READLINK answer."""
    body = _U32.pack(1) + _string(name) + b"\0\0\0\0" + b"\0\0\0\0"
    return _HEAD.pack(5 + len(body), ReplyType.NAME, request) + body


def pack_entry(name: bytes, status: os.stat_result) -> bytes:
    """Return one entry of a listing. The long form, which only terminals show, stays empty: it costs a third."""
    mode, _, _, _, uid, gid, size, accessed, modified, _ = status
    tail = _ENTRY_TAIL.pack(0, _HAS_ALL, size, uid, gid, mode, int(accessed) & _MASK, int(modified) & _MASK)
    return _U32.pack(len(name)) + name + tail


def pack_names(request: int, entries: Sequence[bytes]) -> bytes:
    """Return NAME with packed entries."""
    body = b"".join(entries)
    return _HEAD.pack(9 + len(body), ReplyType.NAME, request) + _U32.pack(len(entries)) + body


def pack_statvfs(request: int, values: tuple[int, ...]) -> bytes:
    """Return the answer to ``statvfs@openssh.com``: eleven 64-bit numbers."""
    return _HEAD.pack(5 + _STATVFS.size, ReplyType.EXTENDED_REPLY, request) + _STATVFS.pack(*values)


def pack_limits(request: int, max_handles: int) -> bytes:
    """Return the answer to ``limits@openssh.com``."""
    body = _LIMITS.pack(MAX_PACKET, MAX_READ, MAX_WRITE, max_handles)
    return _HEAD.pack(5 + len(body), ReplyType.EXTENDED_REPLY, request) + body


def _string(value: bytes) -> bytes:
    return _U32.pack(len(value)) + value

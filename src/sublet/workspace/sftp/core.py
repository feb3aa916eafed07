"""The server side of SFTP version 3 without any I/O of its own: bytes in, bytes out (DESIGN 4.6).

Rules:

- Operations are looked up in a table that fails closed. The table of a read-only view holds no operation that changes
  anything; ``sftp.writes`` adds those, and only for a ``WritableView``.
- The lease is looked at before each operation, so that nothing is done for a lease that was revoked.
- Every request gets exactly one answer, in the order of the requests. What breaks the protocol so that none fits ends
  the session.
- A packet has at most ``MAX_PACKET`` bytes. ``waiting`` tells how many bytes are kept, so that whoever feeds the core
  can stop reading meanwhile.

Weak: a slow file system holds whoever runs the core, but for the operations that answer with ``SlowReply``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from sublet.workspace.confined.later import NotKnownYet
from sublet.workspace.export import LeaseUsage
from sublet.workspace.sftp import wire
from sublet.workspace.sftp.again import Again
from sublet.workspace.sftp.handles import Handles, Listing
from sublet.workspace.sftp.reply import Operation, Reply, SlowReply, SteppedReply
from sublet.workspace.sftp.wire import MAX_PACKET, MAX_READ, Op, OpenFlag, Reader, Status
from sublet.workspace.sftp.writes import WRITE_EXTENSIONS, WRITE_OPS, WriteOps
from sublet.workspace.view.export_view import ExportView, OpenDirectory, OpenFile, WritableView

MAX_LISTING_BYTES: Final = 60_000
"""Bytes of entries in one NAME answer; sshfs refuses answers above 128 KiB."""
_MAX_PIECES: Final = 64
"""Pieces of input that are kept apart: a client that sends byte by byte must not make us keep an object for each."""
_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = 5

_WRITE_FLAGS: Final = OpenFlag.WRITE | OpenFlag.APPEND | OpenFlag.CREAT | OpenFlag.TRUNC | OpenFlag.EXCL
_VERSIONS: Final = {b"statvfs@openssh.com": b"2", b"fstatvfs@openssh.com": b"2"}


class ProtocolAbort(Exception):
    """The client broke the protocol in a way that has no answer; its channel has to be closed."""


class SftpCore:
    """One SFTP session.

    Args:
        view: what the client sees.
        usage: where the session counts what it does.
        handles: the session's open handles.
        is_live: tells whether the lease still holds; asked before every operation.
    """

    def __init__(self, view: ExportView, usage: LeaseUsage, handles: Handles, is_live: Callable[[], bool]) -> None:
        self._view = view
        self._usage = usage
        self._handles = handles
        self._is_live = is_live
        self._data = b""
        self._start = 0
        self._later: list[bytes] = []
        self._received = 0  # bytes from _start on, and all that came later
        self._needed = _SIZE_BYTES
        self._greeted = False
        self._again: Again | None = None
        self._operations: dict[int, Operation] = {
            Op.OPEN: self._open,
            Op.CLOSE: self._close,
            Op.READ: self._read,
            Op.LSTAT: self._lstat,
            Op.FSTAT: self._fstat,
            Op.OPENDIR: self._opendir,
            Op.READDIR: self._readdir,
            Op.REALPATH: self._realpath,
            Op.STAT: self._stat,
            Op.READLINK: self._readlink,
            Op.EXTENDED: self._extended,
        }
        self._extensions: dict[bytes, Operation] = {
            b"statvfs@openssh.com": self._statvfs,
            b"fstatvfs@openssh.com": self._fstatvfs,
            b"limits@openssh.com": self._limits,
        }
        self._writes: WriteOps | None = None
        if isinstance(view, WritableView):
            self._writes = WriteOps(view, usage, handles)
            self._operations.update(self._writes.operations())
            self._extensions.update(self._writes.extensions())

    @property
    def operations(self) -> Mapping[int, Operation]:
        """The operations that are served, by packet type."""
        return self._operations

    @property
    def extensions(self) -> Mapping[bytes, Operation]:
        """The extensions that are served, by name."""
        return self._extensions

    @property
    def waiting(self) -> int:
        """How many bytes have arrived whose requests are not done."""
        return self._received

    def receive(self, data: bytes) -> None:
        """Take what the client sent; ``has_request`` then tells whether that is a whole request."""
        self._later.append(data)
        self._received += len(data)
        if len(self._later) > _MAX_PIECES:
            self._later = [b"".join(self._later)]

    def has_request(self) -> bool:
        """Tell whether a complete request has arrived.

        Raises:
            ProtocolAbort: the stream cannot be followed any further.
        """
        if self._again is not None:
            return True
        if self._received < self._needed:
            return False
        if self._needed > _SIZE_BYTES:
            return True
        if self._later:
            self._data = b"".join((self._data[self._start :], *self._later))
            self._later.clear()
            self._start = 0
        size = int.from_bytes(self._data[self._start : self._start + _SIZE_BYTES], "big")
        if not _HEAD_BYTES <= size <= MAX_PACKET:
            raise ProtocolAbort(f"a packet of {size} bytes")
        self._needed = _SIZE_BYTES + size
        return self._received >= self._needed

    def reply(self) -> Reply:
        """Do the request that ``has_request`` has told of, and return its answer.

        Raises:
            ProtocolAbort: as ``has_request``.
        """
        if (again := self._again) is not None:
            return again.reply() or self._handle(again.data, again.start, again.end, again)
        if self._later:
            self._data = b"".join((self._data[self._start :], *self._later))
            self._later.clear()
            self._start = 0
        data, start = self._data, self._start + _SIZE_BYTES
        end = self._start + self._needed
        self._received -= self._needed
        self._needed = _SIZE_BYTES
        self._start = end
        if not self._received:
            self._data = b""
        return self._handle(data, start, end)

    def close(self) -> None:
        """Close all handles and forget what was received. Idempotent."""
        self._handles.close_all()
        if self._again is not None:
            self._again.drop()
            self._again = None
        self._data = b""
        self._later.clear()
        self._received = 0

    def _handle(self, data: bytes, start: int, end: int, again: Again | None = None) -> Reply:
        self._again = None
        again = again or Again(data, start, end)
        kind = data[start]
        request = int.from_bytes(data[start + 1 : start + _HEAD_BYTES], "big")
        if not self._greeted:
            return self._greet(kind, request)
        self._usage.operations += 1
        if not self._is_live():
            return wire.pack_status(request, Status.NO_CONNECTION, b"the lease is over")
        operation = self._operations.get(kind)
        if operation is None:
            return self._refuse(request, known=kind in WRITE_OPS)
        try:
            reply = operation(request, Reader(data, start + _HEAD_BYTES, end))
            if isinstance(reply, SteppedReply):
                return SteppedReply(self._stepped(request, reply.steps, again))
            if isinstance(reply, SlowReply) and reply.finish is not None:
                return replace(reply, finish=partial(self._finish, request, reply.finish, again))
            return reply
        except NotKnownYet as unknown:
            return self._learn(request, again, unknown)
        except OSError as exc:
            return self._failed(request, exc)
        except wire.MalformedPacket:
            return wire.pack_status(request, Status.BAD_MESSAGE, b"malformed request")

    def _learn(self, request: int, again: Again, unknown: NotKnownYet) -> Reply:
        """Return what has to be done in a thread before a request can be decided, which then is done again."""
        if not again.wait_for(unknown):
            return wire.pack_error(request, OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        self._again = again
        return again.reply() or b""

    def _stepped(
        self, request: int, steps: Generator[None, None, bytes | SlowReply], again: Again
    ) -> Generator[None, None, bytes | SlowReply]:
        """Take the steps of one answer, as long as the lease holds."""
        try:
            while self._is_live():
                try:
                    next(steps)
                except StopIteration as end:
                    answer: bytes = end.value
                    return answer
                yield
            return wire.pack_status(request, Status.NO_CONNECTION, b"the lease is over")
        except NotKnownYet as unknown:
            reply = self._learn(request, again, unknown)
            assert not isinstance(reply, SteppedReply)
            return reply
        except OSError as exc:
            return self._failed(request, exc)
        finally:
            steps.close()

    def _finish(self, request: int, finish: Callable[[], bytes], again: Again) -> bytes:
        """Answer what has begun in a thread, as long as the lease holds; nothing where it is to be done again."""
        if not self._is_live():
            return wire.pack_status(request, Status.NO_CONNECTION, b"the lease is over")
        try:
            return finish()
        except NotKnownYet as unknown:
            if again.wait_for(unknown):
                self._again = again
                return b""
            return wire.pack_error(request, OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        except OSError as exc:
            return self._failed(request, exc)

    def _failed(self, request: int, exc: OSError) -> bytes:
        # The protocol has no word for a full disk; the delegator's daemon tells it by its own way.
        self._usage.quota.failed(exc)
        return wire.pack_error(request, exc)

    def _greet(self, kind: int, version: int) -> bytes:
        if kind != Op.INIT or version < wire.VERSION:
            raise ProtocolAbort("the first packet is no INIT of version 3 or later")
        self._greeted = True
        return wire.pack_version([(name, _VERSIONS.get(name, b"1")) for name in self._extensions])

    @staticmethod
    def _refuse(request: int, *, known: bool) -> bytes:
        if known:
            return wire.pack_status(request, Status.PERMISSION_DENIED, b"the lease is read-only")
        return wire.pack_status(request, Status.OP_UNSUPPORTED, b"unsupported")

    def _open(self, request: int, fields: Reader) -> bytes:
        path, flags, attributes = fields.path(), fields.u32(), fields.attributes()
        self._handles.make_room()
        file: OpenFile
        if not flags & _WRITE_FLAGS:
            file = self._view.open_read(path)
        elif self._writes is None:
            return self._refuse(request, known=True)
        else:
            file = self._writes.open(path, flags, attributes)
        return wire.pack_handle(request, self._handles.add(file))

    def _close(self, request: int, fields: Reader) -> bytes:
        self._handles.close(fields.string())
        return wire.pack_status(request, Status.OK)

    def _read(self, request: int, fields: Reader) -> bytes:
        file = self._handles.file(fields.string())
        offset, size = fields.u64(), fields.u32()
        data = file.read(min(size, MAX_READ), offset) if offset <= wire.MAX_OFFSET else b""
        if not data and size:
            return wire.pack_status(request, Status.EOF)
        self._usage.bytes_read += len(data)
        return wire.pack_data(request, data)

    def _lstat(self, request: int, fields: Reader) -> bytes:
        return wire.pack_attrs(request, self._view.lstat(fields.path()))

    def _stat(self, request: int, fields: Reader) -> bytes:
        return wire.pack_attrs(request, self._view.stat(fields.path()))

    def _fstat(self, request: int, fields: Reader) -> bytes:
        return wire.pack_attrs(request, self._handles.any(fields.string()).stat())

    def _opendir(self, request: int, fields: Reader) -> bytes:
        path = fields.path()
        self._handles.make_room(listing=True)
        directory: OpenDirectory = self._view.open_directory(path)
        return wire.pack_handle(request, self._handles.add(Listing(directory)))

    def _readdir(self, request: int, fields: Reader) -> Reply:
        return SteppedReply(_page(request, self._handles.listing(fields.string())))

    def _realpath(self, request: int, fields: Reader) -> bytes:
        return wire.pack_name(request, self._view.realpath(fields.path()))

    def _readlink(self, request: int, fields: Reader) -> bytes:
        return wire.pack_name(request, self._view.readlink(fields.path()))

    def _extended(self, request: int, fields: Reader) -> Reply:
        name = fields.string()
        operation = self._extensions.get(name)
        if operation is None:
            return self._refuse(request, known=name in WRITE_EXTENSIONS)
        return operation(request, fields)

    def _statvfs(self, request: int, fields: Reader) -> bytes:
        return wire.pack_statvfs(request, self._view.statvfs(fields.path()))

    def _fstatvfs(self, request: int, fields: Reader) -> bytes:
        self._handles.any(fields.string())
        return wire.pack_statvfs(request, self._view.statvfs())

    def _limits(self, request: int, _fields: Reader) -> bytes:
        return wire.pack_limits(request, self._handles.limit)


def _page(request: int, listing: Listing) -> Generator[None, None, bytes | SlowReply]:
    entries = yield from listing.next_entries(MAX_LISTING_BYTES)
    return wire.pack_names(request, entries) if entries else wire.pack_status(request, Status.EOF)

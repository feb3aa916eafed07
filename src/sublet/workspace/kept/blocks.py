"""The blocks of a large file as they were before a lease overwrote them, where the file system can't share them.

The file before is the file now with these blocks put back, and cut to the size that it had. So a lease that changes one
byte of a large file has one block kept, not the whole. Each block is kept once, before it is first overwritten or cut
off, and a removal keeps all that are missing. The rule is that the lease alone has changed the file since: ``Mark``
says how it left the file last, and whoever finds the file in another state must not build the old one from it.

The file begins with a head and a mark, both with a checksum. After them comes one record per block, each with a
checksum. A process that is killed leaves a torn last record at most, which counts as not there: what it was about to
keep was not overwritten yet.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from sublet.workspace.kept.signature import Signature
from sublet.workspace.viewpath import refused

BLOCK_BYTES: Final = 128 << 10
ZERO_CHARGE: Final = 16 << 10
"""What a block of zeros counts in the budget, so that there is a bound for the records of a file full of holes."""
SUFFIX: Final = ".blocks"
"""Ends the name of such a file, behind its number."""
_MAGIC: Final = b"SKB1"
_HEAD: Final = struct.Struct("<4sIQI")
_MARK: Final = struct.Struct("<QqqqI")
_RECORD: Final = struct.Struct("<QII")
_MARK_AT: Final = _HEAD.size
_RECORDS_AT: Final = _HEAD.size + _MARK.size
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE: Final = _WRITE | os.O_CREAT | os.O_EXCL

Span = tuple[int, int]
"""From the first byte to the one after the last."""
ALL: Final[Span] = (0, 1 << 63)
NOTHING: Final[Span] = (0, 0)


@dataclass(frozen=True, slots=True)
class Mark:
    """Which file the blocks belong to, and how the lease left it last."""

    inode: int
    signature: Signature


@dataclass(slots=True)
class Blocks:
    """The blocks of one file that are kept.

    ``size`` is the size of the file before, ``end`` where the next record goes, ``charged`` what the records count in
    the budget. ``verified`` is how many of the blocks are known to be the file's before: the file was looked at
    afterwards, and nobody else had changed it. ``failed`` says that a thread could not keep what it should,
    ``dropped`` that nobody wants these blocks any more. ``path`` is the name under which the state is listed.
    """

    number: int
    size: int
    mark: Mark | None
    kept: set[int] = field(default_factory=set)
    end: int = _RECORDS_AT
    charged: int = 0
    verified: int = 0
    failed: bool = False
    dropped: bool = False
    path: bytes = b""

    @property
    def name(self) -> str:
        """The name of its file."""
        return name_of(self.number)

    @property
    def total(self) -> int:
        """How many blocks the file had."""
        return -(-self.size // BLOCK_BYTES)

    @property
    def is_complete(self) -> bool:
        """Whether all blocks are kept, so that the file now is not needed for the file before."""
        return len(self.kept) == self.total

    def covers(self, span: Span) -> bool:
        """Tell whether nothing has to be kept before the bytes of ``span`` are changed."""
        first, last = self._range(span)
        return all(index in self.kept for index in range(first, last))

    def count(self, span: Span) -> int:
        """Return how many blocks lie in ``span``, kept or not."""
        first, last = self._range(span)
        return max(0, last - first)

    def missing(self, span: Span) -> list[int]:
        """Return the blocks in ``span`` that are not kept."""
        first, last = self._range(span)
        return [index for index in range(first, last) if index not in self.kept]

    def bytes_of(self, index: int) -> int:
        """Return how many bytes a block has; the last one is shorter."""
        return min(BLOCK_BYTES, self.size - index * BLOCK_BYTES)

    def _range(self, span: Span) -> Span:
        start, end = span[0], min(span[1], self.size)
        return (start // BLOCK_BYTES, -(-end // BLOCK_BYTES)) if start < end else (0, 0)


def name_of(number: int) -> str:
    """Return the name of the file that keeps blocks under a number."""
    return f"{number}{SUFFIX}"


def begin(directory: int, number: int, size: int, mark: Mark) -> Blocks:
    """Make the file for the blocks of a file of ``size`` bytes.

    Args:
        directory: a descriptor of the directory that keeps it.
        number: its number there.
        size: of the file as it is.
        mark: which file that is.

    Raises:
        OSError: it can't be made.
    """
    head = _HEAD.pack(_MAGIC, BLOCK_BYTES, size, _crc(_MAGIC, BLOCK_BYTES, size))
    fd = os.open(name_of(number), _CREATE, 0o600, dir_fd=directory)
    try:
        _write(fd, head + _pack(mark), 0)
    except BaseException:
        with suppress(OSError):
            os.unlink(name_of(number), dir_fd=directory)
        raise
    finally:
        os.close(fd)
    return Blocks(number, size, mark)


def sign(directory: int, blocks: Blocks, mark: Mark) -> None:
    """Note how the lease leaves the file now. Where that can't be written, the old mark stays, and is not met again."""
    blocks.mark = mark
    with suppress(OSError):
        fd = os.open(blocks.name, _WRITE, dir_fd=directory)
        try:
            os.pwrite(fd, _pack(mark), _MARK_AT)
        finally:
            os.close(fd)


def add(directory: int, blocks: Blocks, source: int, index: int) -> None:
    """Keep one block of the open file ``source``.

    Raises:
        OSError: it can't be written; ``ESTALE`` where the file has become shorter, so that somebody else changed it.
    """
    size = blocks.bytes_of(index)
    data = os.pread(source, size, index * BLOCK_BYTES)
    if len(data) != size:
        raise refused(errno.ESTALE)
    data = data if data.count(0) != size else b""
    fd = os.open(blocks.name, _WRITE, dir_fd=directory)
    try:
        if os.fstat(fd).st_size > blocks.end:  # a record that was cut short
            os.ftruncate(fd, blocks.end)
        _write(fd, _RECORD.pack(index, len(data), _record_crc(index, data)) + data, blocks.end)
    finally:
        os.close(fd)
    blocks.end += _RECORD.size + len(data)
    blocks.charged += charge(len(data))
    blocks.kept.add(index)


def charge(size: int) -> int:
    """Return what a record with ``size`` bytes counts in the budget."""
    return max(size, ZERO_CHARGE)


def read_mark(directory: int, number: int) -> Mark | None:
    """Return which file the blocks belong to; None where that is not known any more.

    Raises:
        OSError: there are no such blocks, or they can't be read.
    """
    fd = os.open(name_of(number), _READ, dir_fd=directory)
    try:
        return _head(fd, number).mark
    finally:
        os.close(fd)


def load(directory: int, number: int) -> Blocks:
    """Return what is kept under a number. Contents are not read.

    Raises:
        OSError: it is not there, or ``EBADMSG`` where it is damaged.
    """
    fd = os.open(name_of(number), _READ, dir_fd=directory)
    try:
        blocks = _head(fd, number)
        for _, index, size, _ in _records(fd, blocks):
            blocks.kept.add(index)
            blocks.charged += charge(size)
            blocks.end += _RECORD.size + size
        blocks.verified = len(blocks.kept)
        return blocks
    finally:
        os.close(fd)


def restore(directory: int, number: int, target: int) -> None:
    """Make the open file ``target``, which holds what the file holds now, what the file held before.

    Args:
        directory: a descriptor of the directory that keeps the blocks.
        number: their number.
        target: a copy of the file now, or an empty one where all blocks are kept.

    Raises:
        OSError: it can't be read or written; ``EBADMSG`` where a block is damaged, or one is missing.
    """
    fd = os.open(name_of(number), _READ, dir_fd=directory)
    try:
        blocks = _head(fd, number)
        there = os.fstat(target).st_size
        os.ftruncate(target, blocks.size)
        for at, index, size, crc in _records(fd, blocks):
            data = os.pread(fd, size, at)
            if len(data) != size or _record_crc(index, data) != crc:
                raise refused(errno.EBADMSG)
            if index not in blocks.kept:
                blocks.kept.add(index)
                _write(target, data or bytes(blocks.bytes_of(index)), index * BLOCK_BYTES)
        cut = blocks.missing((there, blocks.size))
        if cut:
            raise refused(errno.EBADMSG)
    finally:
        os.close(fd)


def _head(fd: int, number: int) -> Blocks:
    raw = os.pread(fd, _RECORDS_AT, 0)
    if len(raw) != _RECORDS_AT:
        raise refused(errno.EBADMSG)
    magic, block, size, crc = _HEAD.unpack_from(raw)
    if (magic, block) != (_MAGIC, BLOCK_BYTES) or crc != _crc(magic, block, size):
        raise refused(errno.EBADMSG)
    inode, *signature, crc = _MARK.unpack_from(raw, _MARK_AT)
    mark = Mark(inode, Signature(*signature))
    return Blocks(number, size, mark if _pack(mark)[-4:] == crc.to_bytes(4, "little") else None)


def _records(fd: int, blocks: Blocks) -> Iterator[tuple[int, int, int, int]]:
    """Yield where the bytes of each whole record begin, its block, its bytes and its checksum."""
    at, end = _RECORDS_AT, os.fstat(fd).st_size
    while at + _RECORD.size <= end:
        head = os.pread(fd, _RECORD.size, at)
        if len(head) != _RECORD.size:
            return
        index, size, crc = _RECORD.unpack(head)
        at += _RECORD.size
        if index >= blocks.total or size not in (0, blocks.bytes_of(index)):
            raise refused(errno.EBADMSG)
        if at + size > end:
            return
        yield at, index, size, crc
        at += size


def _pack(mark: Mark) -> bytes:
    numbers = (mark.inode, *mark.signature)
    return _MARK.pack(*numbers, _crc(*numbers))


def _crc(*values: object) -> int:
    return zlib.crc32(repr(values).encode())


def _record_crc(index: int, data: bytes) -> int:
    return zlib.crc32(data, index & 0xFFFFFFFF)


def _write(fd: int, data: bytes, at: int) -> None:
    """Write all of ``data``.

    Raises:
        OSError: as ``pwrite(2)``; a part may be there then, and counts for nothing.
    """
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written:], at + written)

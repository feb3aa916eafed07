"""What a bundle holds, measured before git reads any of it.

A pack says of each object how large it is, and a few bytes can say anything. So every object is unpacked here once, in
pieces that are thrown away: the cost is linear in what comes out, and that is bounded. Git then reads a pack of which
no object is larger than it says, and none that it has to hold as a whole is large. Deltas are not resolved: each begins
with the size of its result, and git refuses another result.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import IO, Final

MAX_HEAD_BYTES: Final = 4096
"""Of a bundle before its pack: a signature, one reference, and what it is built on."""
MAX_PREREQUISITES: Final = 4
MAX_WHOLE_BYTES: Final = 16 << 20
"""Of an object that git holds in memory as a whole: a tree, or what a delta makes."""
MAX_COMMIT_BYTES: Final = 64 * 1024
_SIGNATURE: Final = b"# v2 git bundle\n"
_PACK_HEAD: Final = 12
_DIGEST: Final = 20
_ID_DIGITS: Final = 40
_PIECE: Final = 64 * 1024
_SLACK: Final = 64
_DELTA_HEAD: Final = 20
"""Bytes of a delta in which the sizes of its base and its result are."""
_COMMIT, _TREE, _BLOB, _OFFSET_DELTA, _NAMED_DELTA = 1, 2, 3, 6, 7
_HEX: Final = frozenset(b"0123456789abcdef")


class MalformedBundle(Exception):
    """The file is no bundle of the kind that is exchanged here, or passes a bound; the text says why."""


@dataclass(frozen=True, slots=True)
class BundleHead:
    """The beginning of a bundle.

    ``commit`` is that of its one branch, ``needs`` the commits that it is built on, and ``pack`` the offset of its pack
    in the file, in bytes.
    """

    commit: str
    needs: frozenset[str]
    pack: int


@dataclass(frozen=True, slots=True)
class PackExtent:
    """How many objects a pack holds, and how many bytes they come to when they are unpacked."""

    objects: int
    bytes: int


def read_head(file: IO[bytes], branch: bytes) -> BundleHead:
    """Return the beginning of a bundle whose one reference is ``branch``.

    Raises:
        MalformedBundle: it is no bundle, or of another kind.
    """
    file.seek(0)
    content = file.read(MAX_HEAD_BYTES)
    head, blank, _ = content.partition(b"\n\n")
    if not blank or not head.startswith(_SIGNATURE):
        raise MalformedBundle("it is no bundle, or of another kind")
    needs: set[str] = set()
    commits: list[str] = []
    for line in head[len(_SIGNATURE) :].split(b"\n"):
        if line.startswith(b"-"):
            needs.add(_object_id(line[1:].partition(b" ")[0]))
        else:
            commit, _, name = line.partition(b" ")
            if name != branch:
                raise MalformedBundle("it holds another reference than the one that is exchanged")
            commits.append(_object_id(commit))
    if len(commits) != 1 or len(needs) > MAX_PREREQUISITES:
        raise MalformedBundle("it holds more than one reference, or is built on too much")
    return BundleHead(commits[0], frozenset(needs), len(head) + 2)


def measure(file: IO[bytes], start: int, *, max_objects: int, max_bytes: int) -> PackExtent:
    """Return what the pack at ``start`` holds, to the end of the file.

    Args:
        file: the bundle.
        start: offset of the pack, in bytes.
        max_objects: how many objects it may hold.
        max_bytes: what they may come to when they are unpacked.

    Raises:
        MalformedBundle: it is no whole pack, holds something else than commits, trees, blobs and deltas, or passes a
            bound.
    """
    reader = _Reader(file, start)
    head = reader.take(_PACK_HEAD)
    count = int.from_bytes(head[8:], "big")
    if head[:8] != b"PACK\0\0\0\2":
        raise MalformedBundle("it holds no pack of version 2")
    if count > max_objects:
        raise MalformedBundle(f"it holds more than {max_objects:,} objects")
    total = 0
    for _ in range(count):
        total += _object(reader, max_bytes - total)
        if total > max_bytes:
            raise MalformedBundle(f"it holds more than {max_bytes:,} bytes when it is unpacked")
    reader.take(_DIGEST)
    if not reader.at_end():
        raise MalformedBundle("something follows its pack")
    return PackExtent(count, total)


class _Reader:
    """Hands out the bytes of a file from an offset on, holding one piece of it at a time."""

    def __init__(self, file: IO[bytes], start: int) -> None:
        file.seek(start)
        self._file = file
        self._piece = b""
        self._at = 0

    def at_end(self) -> bool:
        return self._at >= len(self._piece) and not self._more()

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes, for small numbers."""
        taken = b""
        while len(taken) < size:
            if self.at_end():
                raise MalformedBundle("its pack is cut")
            step = self._piece[self._at : self._at + size - len(taken)]
            self._at += len(step)
            taken += step
        return taken

    def byte(self) -> int:
        if self._at >= len(self._piece) and not self._more():
            raise MalformedBundle("its pack is cut")
        value = self._piece[self._at]
        self._at += 1
        return value

    def inflate(self, size: int) -> bytes:
        """Unpack the object of ``size`` bytes that comes next, and return its first bytes."""
        unpack = zlib.decompressobj()
        total, beginning = 0, b""
        step = min(_PIECE, size + _SLACK)
        try:
            while not unpack.eof:
                if self._at >= len(self._piece) and not self._more():
                    raise MalformedBundle("its pack is cut")
                given = self._piece[self._at : self._at + step]
                self._at += len(given)
                while given and not unpack.eof:
                    piece = unpack.decompress(given, min(_PIECE, size - total + 1))
                    given = unpack.unconsumed_tail
                    total += len(piece)
                    if total > size:
                        raise MalformedBundle("an object is larger than it says")
                    if len(beginning) < _DELTA_HEAD:
                        beginning += piece[:_DELTA_HEAD]
                self._at -= len(unpack.unused_data)
        except zlib.error:
            raise MalformedBundle("an object can't be unpacked") from None
        if total != size:
            raise MalformedBundle("an object is smaller than it says")
        return beginning

    def _more(self) -> bool:
        self._piece, self._at = self._file.read(_PIECE), 0
        return bool(self._piece)


def _object(reader: _Reader, room: int) -> int:
    """Return the bytes of the next object when it is unpacked; of a delta, those of what it makes are among them."""
    byte = reader.byte()
    kind, size, shift = byte >> 4 & 7, byte & 15, 4
    while byte & 0x80:
        byte = reader.byte()
        size |= (byte & 0x7F) << shift
        shift += 7
        if shift > 60:
            raise MalformedBundle("an object has a size that can't be")
    if kind == _OFFSET_DELTA:
        for _ in range(10):
            if not reader.byte() & 0x80:
                break
        else:
            raise MalformedBundle("a delta is built on nothing")
    elif kind == _NAMED_DELTA:
        reader.take(_DIGEST)
    elif kind not in (_COMMIT, _TREE, _BLOB):
        raise MalformedBundle("it holds an object of another kind than commits, trees and files")
    if kind != _BLOB and size > (MAX_COMMIT_BYTES if kind == _COMMIT else MAX_WHOLE_BYTES):
        raise MalformedBundle(f"it says that it holds one object of {size:,} bytes, which is too large for its kind")
    if size > room:
        raise MalformedBundle(f"it says that it holds one object of {size:,} bytes, which is more than may come")
    beginning = reader.inflate(size)
    if kind in (_OFFSET_DELTA, _NAMED_DELTA):
        _, at = _varint(beginning, 0)
        made, _ = _varint(beginning, at)
        if made > MAX_WHOLE_BYTES:
            raise MalformedBundle(f"it holds a difference that makes {made:,} bytes, which is too much for one")
        return size + made
    return size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number as a delta has it, and where it ends."""
    value = 0
    for place, byte in enumerate(content[at : at + 9]):
        value |= (byte & 0x7F) << 7 * place
        if not byte & 0x80:
            return value, at + place + 1
    raise MalformedBundle("a difference does not say what it makes")


def _object_id(text: bytes) -> str:
    if len(text) != _ID_DIGITS or not _HEX.issuperset(text):
        raise MalformedBundle("it names no object")
    return text.decode("ascii")

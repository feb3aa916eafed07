"""How blobs are asked for and told, piece by piece (ezagent 5, EXT-10): ``room_id 36 bytes · offset u64``, and back
``size u64 · bytes``."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.ids import RoomId, is_room_id

MAX_BLOB_BYTES: Final = 16 << 20
MAX_KEPT_BYTES: Final = MAX_BLOB_BYTES + (MAX_BLOB_BYTES >> 3) + 1_024
"""Of a file that is sealed, which is padded by an eighth at most (``sealing.files``)."""
PIECE_BYTES: Final = 512 << 10
_ASK: Final = struct.Struct(">36sQ")
_HEAD: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class PieceRequest:
    """Which piece is wanted, and in which room the asker has seen the blob named."""

    room_id: RoomId
    offset: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a blob, and how large the whole is."""

    size: int
    data: bytes


def encode_wanted(wanted: PieceRequest) -> bytes:
    """Return the question for a piece."""
    return _ASK.pack(wanted.room_id.encode(), wanted.offset)


def parse_wanted(raw: bytes) -> PieceRequest:
    """Return which piece is asked for.

    Raises:
        Refused: ``MALFORMED``.
    """
    try:
        room, offset = _ASK.unpack(raw)
        room_id = room.decode("ascii")
    except (struct.error, UnicodeDecodeError):
        raise malformed("a question for a blob of another form") from None
    if not is_room_id(room_id) or offset >= MAX_KEPT_BYTES:
        raise malformed("a question for a blob of another form")
    return PieceRequest(room_id, offset)


def encode_piece(piece: Piece) -> bytes:
    """Return a piece as it travels."""
    return _HEAD.pack(piece.size) + piece.data


def parse_piece(raw: bytes) -> Piece:
    """Return a piece, whose place in the blob nobody has checked yet.

    Raises:
        Refused: ``MALFORMED``: it is no piece, or of a blob that is too large.
    """
    if len(raw) < _HEAD.size:
        raise malformed("a piece of a blob is cut off")
    (size,) = _HEAD.unpack_from(raw)
    data = raw[_HEAD.size :]
    if not 0 < size <= MAX_KEPT_BYTES or not 0 < len(data) <= min(size, PIECE_BYTES):
        raise malformed("a piece of a blob that can't be")
    return Piece(size, data)

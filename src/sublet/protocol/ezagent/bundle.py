"""Several signed things in one message: the answer to a state query, and what accompanies an update.

``version u8 · flags u8 · (kind u8 · length u32 · bytes)*``. Peers serve the signed log itself, so that whoever joins
verifies history as it verifies live updates (DESIGN 6.4).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from sublet.protocol.ezagent.errors import Refusal, Refused, malformed

VERSION: Final = 1
MAX_BUNDLE_BYTES: Final = 8 << 20
MAX_RECORDS: Final = 1 << 16
_HEAD: Final = struct.Struct(">BB")
_RECORD: Final = struct.Struct(">BI")
_MORE: Final = 1


class RecordKind(IntEnum):
    """What a record holds."""

    ENVELOPE = 1
    CONTENT = 2
    IDENTITY = 3
    FORK = 5
    """A bundle of the two envelopes that prove it."""
    ROOT = 6
    """An envelope in which a member states what it has of a room."""
    GO_ON = 7
    """With which part of a question to go on, where an answer holds no more."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Records in order; ``more`` says that the sender has more, to be asked for with a newer state vector."""

    records: tuple[tuple[RecordKind, bytes], ...]
    more: bool = False

    def of(self, kind: RecordKind) -> list[bytes]:
        """Return the records of one kind."""
        return [raw for found, raw in self.records if found is kind]


def encode_bundle(records: Iterable[tuple[RecordKind, bytes]], *, more: bool = False) -> bytes:
    """Return the records as one message."""
    pieces = [_HEAD.pack(VERSION, _MORE if more else 0)]
    for kind, raw in records:
        pieces += (_RECORD.pack(kind, len(raw)), raw)
    return b"".join(pieces)


def decode_bundle(data: bytes) -> Bundle:
    """Return the records in ``data``, none of them checked.

    Raises:
        Refused: ``OVERSIZED``, or ``MALFORMED``.
    """
    if len(data) > MAX_BUNDLE_BYTES:
        raise Refused(Refusal.OVERSIZED, f"a bundle of {len(data)} bytes")
    records: list[tuple[RecordKind, bytes]] = []
    try:
        version, flags = _HEAD.unpack_from(data)
        place = _HEAD.size
        while place < len(data):
            kind, length = _RECORD.unpack_from(data, place)
            place += _RECORD.size
            if place + length > len(data) or len(records) >= MAX_RECORDS:
                raise malformed("a bundle is cut off, or holds too much")
            records.append((RecordKind(kind), data[place : place + length]))
            place += length
    except (struct.error, ValueError) as error:
        raise error if isinstance(error, Refused) else malformed("a bundle of another form") from None
    if version != VERSION or flags > _MORE:
        raise malformed(f"bundle version {version}")
    return Bundle(tuple(records), more=flags == _MORE)

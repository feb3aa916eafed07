"""Which rooms an entity knows itself to be in, as it says when it asks its inbox for others: 16 bytes for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from sublet.protocol.ezagent.errors import malformed
from sublet.protocol.ezagent.ids import RoomId, is_room_id

MAX_KNOWN_ROOMS: Final = 8_192
_ID_BYTES: Final = 16


def encode_known(rooms: Iterable[RoomId]) -> bytes:
    """Return the ids of rooms as they travel; of more than ``MAX_KNOWN_ROOMS`` the rest is told again."""
    return b"".join(uuid.UUID(room_id).bytes for room_id in sorted(rooms)[:MAX_KNOWN_ROOMS])


def parse_known(raw: bytes) -> frozenset[RoomId]:
    """Return the ids of the rooms that whoever asks knows.

    Raises:
        Refused: ``MALFORMED``.
    """
    if len(raw) % _ID_BYTES or len(raw) > MAX_KNOWN_ROOMS * _ID_BYTES:
        raise malformed("a list of rooms of another form")
    rooms = [str(uuid.UUID(bytes=raw[at : at + _ID_BYTES])) for at in range(0, len(raw), _ID_BYTES)]
    if not all(map(is_room_id, rooms)):
        raise malformed("a list of what are no rooms")
    return frozenset(rooms)

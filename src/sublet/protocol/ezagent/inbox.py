"""An entity's inbox: which rooms it knows itself to be in, 16 bytes each, and what it is told of others.

What it is told of rooms is sealed for its key where that is known: the config of a room that is sealed for its members
is nobody else's business on the way.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from nacl.signing import SigningKey, VerifyKey

from sublet.protocol.ezagent.errors import Refused, malformed
from sublet.protocol.ezagent.ids import RoomId, is_room_id
from sublet.protocol.ezagent.question import open_answer, seal_for

MAX_KNOWN_ROOMS: Final = 8_192
_ID_BYTES: Final = 16
_SEALED: Final = b"\x82"
"""What begins an offer that is sealed; never a bundle."""


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


def seal_offer(key: VerifyKey, offer: bytes) -> bytes:
    """Return an offer that only the entity with a key opens, and whose length says little of it."""
    return _SEALED + seal_for(key, offer, in_steps=True)


def open_offer(keys: Iterable[SigningKey], raw: bytes) -> bytes:
    """Return an offer as it was before it was sealed, where it is.

    Args:
        keys: of our own entities, one of which it may be for.
        raw: the offer.

    Raises:
        Refused: ``MALFORMED``: it is sealed for somebody else.
    """
    if not raw.startswith(_SEALED):
        return raw
    for key in keys:
        try:
            return open_answer(key, raw[len(_SEALED) :])
        except Refused:
            continue
    raise malformed("an offer that is not sealed for us")

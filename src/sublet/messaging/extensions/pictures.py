"""The pictures of profiles (EXT-13): checked by their bytes, kept with the files of rooms, fetched from their owner.

A profile names a picture by its hash. Only the daemon whose entity it is tells it, to members of a room that the two
share; a daemon that has the picture of somebody else does not. So nobody gets a file by naming its hash in a profile.
"""

from __future__ import annotations

import base64
import hashlib
from functools import partial
from typing import Final

from sublet.messaging.calls import people_calls as calls
from sublet.messaging.declaring.asking import AskingContext
from sublet.messaging.declaring.operating import OperationContext, OperationParts
from sublet.messaging.ports.blobs import keep
from sublet.messaging.reading.avatars import avatar_hash, avatar_of
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.blob import PieceRequest, encode_wanted, parse_piece
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.picture import MAX_PICTURE_BYTES, MAX_SIDE, picture_type

_SHARED: Final = 4
"""Rooms that are shared with somebody whose picture is asked for: in one of them its daemon will know us."""


def keep_picture(parts: OperationParts, data: bytes) -> str:
    """Keep a picture, and return its hash as a profile names it.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: it is none; ``UNAVAILABLE``: there is no space for it.
    """
    if picture_type(data) is None:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "this is no picture that others are shown",
            f"Give a PNG, JPEG, GIF or WebP of at most {MAX_PICTURE_BYTES >> 10} KiB and {MAX_SIDE} pixels a side.",
        )
    return avatar_hash(keep(parts.blobs, data))


async def find_picture(context: AskingContext, entity: EntityId, known: str | None = None) -> calls.PictureFound:
    """Return the picture that a profile names, fetched from its owner's daemon where it is not here.

    Args:
        context: who asks.
        entity: whose.
        known: the digest of the picture that the caller has, whose bytes are not told again.

    Raises:
        SubletError: ``UNAVAILABLE``: its daemon does not tell it now, or what it tells is none.
    """
    digest, data, rooms = await context.engine(partial(_here, entity=entity))
    if digest is None or digest == known:
        return {"entity_id": entity, "digest": digest, "media_type": None, "data": None}
    for room in rooms if data is None else ():
        answers = await context.fetch(doc_id("blob", hash=digest), encode_wanted(PieceRequest(room, 0)))
        data = next((found for raw in answers if (found := _whole(raw, digest)) is not None), None)
        if data is not None:
            await context.engine(partial(_keep, data=data))
            break
    kind = None if data is None else picture_type(data)
    if data is None or kind is None:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"the picture of {entity} can't be had now", "Try again when its daemon is up."
        )
    return {"entity_id": entity, "digest": digest, "media_type": kind, "data": base64.b64encode(data).decode()}


def named_pictures(parts: OperationParts, most: int) -> set[str]:
    """Return the hashes of the pictures of our entities and of those who share a room with them.

    Args:
        parts: of the engine.
        most: how many profiles are looked at.
    """
    members = {entity for room in parts.here.ids for entity in parts.rooms.state(room).members()}
    entities = [*parts.keyring.local, *sorted(members - set(parts.keyring.local))][:most]
    return {digest for entity in entities if (digest := avatar_of(parts.reading, entity)) is not None}


def _here(context: OperationContext, entity: EntityId) -> tuple[str | None, bytes | None, list[RoomId]]:
    """Return the hash of a picture, the picture where it is here, and else in which rooms to ask for it."""
    parts = context.parts
    digest = avatar_of(parts.reading, entity)
    size = None if digest is None else parts.blobs.size(digest)
    if digest is not None and size is not None and size <= MAX_PICTURE_BYTES:
        return digest, parts.blobs.read(digest, 0, size), []
    shared = [room for room in parts.here.ids if _share(parts, room, context.entity, entity)]
    return digest, None, shared[:_SHARED]


def _keep(context: OperationContext, data: bytes) -> None:
    keep(context.parts.blobs, data)


def _share(parts: OperationParts, room: RoomId, one: EntityId, other: EntityId) -> bool:
    return parts.here.is_member(one, room) and parts.here.is_member(other, room)


def _whole(raw: bytes, digest: str) -> bytes | None:
    """Return the picture that an answer holds whole, None where it is another, or none."""
    try:
        piece = parse_piece(raw)
    except Refused:
        return None
    if piece.size != len(piece.data) or hashlib.sha256(piece.data).hexdigest() != digest:
        return None
    return piece.data if picture_type(piece.data) is not None else None

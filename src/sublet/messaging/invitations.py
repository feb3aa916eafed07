"""Whom we share rooms with, and rooms that one of ours is brought into."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from sublet.messaging.engine.engine import Engine
from sublet.protocol.ezagent.bundle import Bundle, RecordKind
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import parse_doc_id

MAX_ROOMS: Final = 4_096


def known(engine: Engine) -> set[EntityId]:
    """Return the members of all rooms that are here."""
    return {entity for room_id in engine.wanted_rooms for entity in engine.rooms.state(room_id).members()}


def documents_of_members(engine: Engine) -> list[str]:
    """Return the ids of what those members, and our own entities, keep for all their rooms."""
    members = sorted(known(engine) | set(engine.keyring.local))
    return [name for entity in members for name in engine.registry.entity_documents(entity)]


def configs(bundle: Bundle) -> dict[RoomId, set[EntityId]]:
    """Return the rooms whose configs a bundle holds, with who has signed them."""
    rooms: dict[RoomId, set[EntityId]] = {}
    for raw in bundle.of(RecordKind.ENVELOPE):
        with suppress(Refused):
            envelope = unpack(raw)
            place = parse_doc_id(envelope.doc_id)
            if place.kind == "config" and place.room_id is not None:
                rooms.setdefault(place.room_id, set()).add(envelope.signer)
    return rooms


def take_room(engine: Engine, room_id: RoomId, bundle: Bundle) -> bool:
    """Take a room's config, and tell whether it is a new one that one of ours is a member of."""
    if room_id in engine.wanted_rooms:
        engine.intake.take_bundle(None, bundle)
        return False
    if len(engine.wanted_rooms) >= MAX_ROOMS:
        return False
    engine.wanted_rooms.add(room_id)
    engine.intake.take_bundle(None, bundle)
    state = engine.rooms.state(room_id)
    if any(state.role(entity) is not None for entity in engine.keyring.local):
        return True
    engine.unwant_room(room_id)
    return False

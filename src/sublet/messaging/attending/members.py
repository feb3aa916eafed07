"""Of whom and of which documents the network is asked: the members of all rooms, and what they keep for all of them."""

from __future__ import annotations

from typing import Protocol

from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.schema import Schema
from sublet.protocol.ezagent.ids import EntityId, RoomId


class MemberParts(Protocol):
    """The parts of the engine for knowing who is a member."""

    @property
    def here(self) -> RoomsHere: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def schema(self) -> Schema: ...


def known(engine: MemberParts) -> set[EntityId]:
    """Return the members of all rooms that are here."""
    return {entity for room_id in engine.here.ids for entity in engine.rooms.state(room_id).members()}


def writers_of_drafts(engine: MemberParts, room_id: RoomId) -> list[EntityId]:
    """Return those of ours whose drafts other devices of theirs may have, or may want."""
    if engine.schema.datatype_at("draft") is None:
        return []
    ours = [entity for entity, local in engine.keyring.local.items() if local.record.devices or local.record.statements]
    return [entity for entity in ours if engine.here.is_member(entity, room_id)]


def documents_of_members(engine: MemberParts) -> list[str]:
    """Return the ids of what those members, and our own entities, keep for all their rooms."""
    members = sorted(known(engine) | set(engine.keyring.local))
    return [name for entity in members for name in engine.schema.entity_documents(entity)]

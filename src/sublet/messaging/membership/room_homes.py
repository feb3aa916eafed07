"""What a relay is to know of our rooms: which daemons are in them; told by the daemons of owners alone.

An entity's daemons are its devices: those that were added too, and none that was removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.room.state import Role
from sublet.protocol.ezagent.room.statements import founding
from sublet.protocol.relay.room_statement import MAX_HOMES, MAX_MANAGERS, RoomHomes


class HomesParts(Protocol):
    """The parts of the engine that know who is in a room."""

    @property
    def here(self) -> RoomsHere: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def rooms(self) -> RoomStates: ...


def rooms_here(engine: HomesParts) -> frozenset[RoomId]:
    """Return the rooms that one of ours is a member of."""
    return frozenset(state.room_id for one in engine.keyring.local for state in engine.here.of(one))


def homes_to_state(engine: HomesParts, rooms: Iterable[RoomId]) -> dict[RoomId, RoomHomes]:
    """Return who is in those rooms of which one of ours is an owner, ``MAX_HOMES`` daemons of each at most."""
    found: dict[RoomId, RoomHomes] = {}
    for room_id in rooms:
        state = engine.rooms.state(room_id)
        if not any(state.role(one) is Role.OWNER for one in engine.keyring.local):
            continue
        opened = founding(room_id, engine.rooms.statements(room_id))
        if opened is None or state.creator is None:
            continue
        members = state.members()
        writes = state.level("events_default").value
        writers = _homes(engine, (one for one in members if state.power(one) >= writes))
        owners = _homes(engine, (one for one, role in members.items() if role is Role.OWNER))
        readers = _homes(engine, members) - writers
        found[room_id] = RoomHomes(
            state.creator,
            opened[1],
            frozenset(sorted(writers)[:MAX_HOMES]),
            frozenset(sorted(readers)[:MAX_HOMES]),
            frozenset(sorted(owners)[:MAX_MANAGERS]),
        )
    return found


def _homes(engine: HomesParts, entities: Iterable[EntityId]) -> frozenset[str]:
    return frozenset[str]().union(*map(engine.keyring.homes, entities))

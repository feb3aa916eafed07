"""Which daemons hear what is published of a room, and which of them may answer what is asked of it.

Rules: nothing of a room goes to a daemon that no member lives on, and nobody else is asked about it. Config of a room
that anybody may look at (open, or to knock at) is for all. An entity's daemons are its devices: the one whose key
vouches for it, or as long as no record of it is here that which its domain names, and those that were added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from sublet.protocol.ezagent.blob import parse_wanted
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import Channel, DocumentPlace, parse_doc_id
from sublet.protocol.ezagent.room.state import Membership, Policy, RoomState

if TYPE_CHECKING:
    from sublet.messaging.ports.outbox import Outgoing
    from sublet.messaging.rooms.here import RoomsHere
    from sublet.messaging.rooms.states import RoomStates

MAX_ROOMS: Final = 1_024
"""Rooms of which it is remembered which daemons hear them; what was worked out longest ago goes first."""
_ENDS = tuple(f"/{channel}" for channel in Channel)


class Homes(Protocol):
    """Knows at which daemon an entity is at home."""

    moves: int

    def homes(self, entity: EntityId) -> frozenset[str]:
        """Return the node ids of an entity's daemons; others than before only where ``moves`` has changed."""


class _Told(NamedTuple):
    """The daemons of a room's members, and the state and the homes that they are of."""

    state: RoomState
    moves: int
    daemons: frozenset[str]


class Audience:
    """Knows the daemons of members. Used on the engine's thread.

    Args:
        states: who is in a room.
        here: the rooms that are here.
        homes: whose daemon is which.
    """

    def __init__(self, states: RoomStates, here: RoomsHere, homes: Homes) -> None:
        self._homes = homes
        self._states = states
        self._here = here
        self._told: dict[RoomId, _Told] = {}

    def addressed(self, outgoing: Iterable[Outgoing]) -> list[Outgoing]:
        """Return what is to be published, with the daemons that it goes to. Who was removed hears of that once."""
        addressed = [replace(item, to=self.hears(item.key)) for item in outgoing]
        self._states.forget_before()
        return addressed

    def hears(self, key: str) -> frozenset[str] | None:
        """Return the node ids of the daemons to which something is published; None for all.

        Who has just been removed from a room hears that.
        """
        place = _place(key)
        if place is None:
            return frozenset()
        if place.room_id is None:
            return self._of_companions(place.entity_id)
        members = self._of_room(place.room_id)
        if place.kind != "config":
            return members
        if self._states.state(place.room_id).policy in (Policy.OPEN, Policy.KNOCK):
            return None
        return members | self.daemons_of(self._states.members_before(place.room_id))

    def answers(self, key: str, body: bytes) -> frozenset[str] | None:
        """Return the node ids of the daemons whose answers to a question count; None where anybody may know.

        Args:
            key: what is asked for.
            body: the question, before it is signed.
        """
        place = _place(key)
        if place is None:
            return frozenset()
        if place.entity_id is not None and (
            place.room_id is not None or place.kind == "challenge" or key.endswith(f"/inbox/{Channel.UPDATES}")
        ):
            return self._homes.homes(place.entity_id)  # which alone can tell
        if place.kind == "blob":
            return self._of_room(parse_wanted(body).room_id)
        if place.room_id is not None:
            # Of a room that is looked for nobody is known yet.
            return (self._of_room(place.room_id) | self._of_those_who_left(place.room_id)) or None
        if place.kind == "inbox":
            return None
        companions = self._of_companions(place.entity_id)
        return None if place.kind == "pubkey" and len(companions) <= 1 else companions

    def _of_room(self, room_id: RoomId) -> frozenset[str]:
        state, told = self._states.state(room_id), self._told.get(room_id)
        if told is None or told.state is not state or told.moves != self._homes.moves:
            self._told.pop(room_id, None)
            if len(self._told) >= MAX_ROOMS:
                del self._told[next(iter(self._told))]
            told = self._told[room_id] = _Told(state, self._homes.moves, self.daemons_of(state.members()))
        return told.daemons

    def _of_those_who_left(self, room_id: RoomId) -> frozenset[str]:
        """Return the daemons of those who left by themselves: they may have the last that was written."""
        entities = self._states.state(room_id).entities
        return self.daemons_of(entity for entity, one in entities.items() if _has_left(entity, one))

    def _of_companions(self, entity: EntityId | None) -> frozenset[str]:
        """Return the daemons of an entity, and of the members of all rooms that it is in."""
        if entity is None:
            return frozenset()
        rooms = (self._of_room(state.room_id) for state in self._here.of(entity))
        return self._homes.homes(entity).union(*rooms)

    def daemons_of(self, entities: Iterable[EntityId]) -> frozenset[str]:
        """Return the node ids of the daemons on which some entities live."""
        return frozenset[str]().union(*map(self._homes.homes, entities))


def _has_left(entity: EntityId, membership: Membership) -> bool:
    removals = membership.removals
    return bool(removals) and membership.current() is None and removals[-1].by == entity


def _place(key: str) -> DocumentPlace | None:
    for end in _ENDS:
        key = key.removesuffix(end)
    try:
        return parse_doc_id(key)
    except Refused:
        return None

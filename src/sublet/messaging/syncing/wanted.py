"""What peers are asked for, or told, one after the other: a small value each, so that two alike are one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from sublet.protocol.ezagent.ids import EntityId, RoomId


@dataclass(frozen=True, slots=True)
class WantedDocument:
    """What a document lacks here.

    Args:
        name: its id.
        of: node ids of the peers that are asked; None for all that may know.
    """

    name: str
    of: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class WantedRoom:
    """All that members hold of a room and we don't."""

    room_id: RoomId


@dataclass(frozen=True, slots=True)
class WantedKey:
    """An entity's key."""

    entity: EntityId


@dataclass(frozen=True, slots=True)
class Offer:
    """Telling an entity of a room that we have invited it to."""

    room_id: RoomId
    entity: EntityId


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """Telling an entity that we have taken back its invitation to a room."""

    room_id: RoomId
    entity: EntityId


@dataclass(frozen=True, slots=True)
class Bringing:
    """Telling an entity of a room that others have invited it to, should they not reach it."""

    room_id: RoomId
    entity: EntityId


Doubted: TypeAlias = WantedDocument | WantedRoom | WantedKey
"""What somebody may claim to be there, or to lack."""
Wanted: TypeAlias = Doubted | Offer | Withdrawal | Bringing

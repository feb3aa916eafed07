"""Calls around rooms and who is in them."""

from __future__ import annotations

from typing import Any, TypedDict

from sublet.messaging.calls.engine_call import engine_call
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.ids import EntityId, RoomId


class RoomNamed(TypedDict):
    """A room and what it is called."""

    room_id: RoomId
    name: str


class RoomOpened(RoomNamed):
    """A room that was opened, and from whom what is said there is hidden: ``sealing.levels.Encryption``."""

    encryption: str


class RoomSummary(RoomOpened):
    """A room as one of its members sees it; ``write_level`` is the power that saying something there takes."""

    policy: str
    role: str
    members: int
    created_by: EntityId
    write_level: int
    last_activity: str


class MemberFound(TypedDict):
    """What somebody is in a room."""

    role: str
    power: int


class RoomFound(RoomOpened):
    """A room, its config by names with dots, and its members; ``invited`` are those who have not come in by now."""

    policy: str
    role: str
    created_by: EntityId
    write_level: int
    last_activity: str
    invited: dict[EntityId, str]
    config: dict[str, Any]
    members: dict[EntityId, MemberFound]


@engine_call("room.create")
def create(
    name: str,
    policy: str = "invite",
    invite: list[EntityId] | None = None,
    extensions: list[str] | None = None,
    seed: tuple[int, bytes] | None = None,
    encryption: str = "transport_only",
) -> RoomOpened:
    """Open a room."""
    raise NotImplementedError


@engine_call("room.list")
def list_rooms() -> list[RoomSummary]:
    """Return the rooms that the caller is a member of."""
    raise NotImplementedError


@engine_call("room.get")
def get(room_id: RoomId) -> RoomFound:
    """Return a room's config as it counts."""
    raise NotImplementedError


@engine_call("room.members")
def members(room_id: RoomId) -> dict[EntityId, str]:
    """Return each member's role."""
    raise NotImplementedError


@engine_call("room.update_config")
def update_config(room_id: RoomId, changes: dict[str, Any]) -> None:
    """Change fields of the config, named with dots."""


@engine_call("room.invite")
def invite(room_id: RoomId, entity: EntityId, role: str = "member") -> None:
    """Make an entity a member."""


@engine_call("room.join")
def join(room_id: RoomId) -> RoomNamed:
    """Become a member of an open room."""
    raise NotImplementedError


@engine_call("room.knock")
def knock(room_id: RoomId, text: str = "") -> None:
    """Ask to be let in."""


@engine_call("room.decline")
def decline(room_id: RoomId, entity: EntityId) -> None:
    """Answer a knock with no."""


@engine_call("room.leave")
def leave(room_id: RoomId, reason: str = "") -> None:
    """Leave a room."""


@engine_call("room.kick")
def kick(room_id: RoomId, entity: EntityId, reason: str = "", ban: bool = False) -> None:
    """Remove a member."""


@engine_call("room.set_power")
def set_power(room_id: RoomId, entity: EntityId, level: int) -> None:
    """Set the power of a member."""


@engine_call("identity.get_pubkey")
def get_pubkey(entity_id: EntityId) -> dict[str, Any]:
    """Return the key of an entity that is known."""
    raise NotImplementedError


@engine_call("identity.verify_peer")
def verify_peer(entity_id: EntityId) -> dict[str, JsonValue]:
    """Have an entity show that it holds its key."""
    raise NotImplementedError

"""Operations on members of rooms: a room's config, who asks to be let in, who is removed (ezagent 4.2).

What counts is decided by the room's own table: a room's power levels say who may do any of it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from sublet.daemon.api.operation import Asks, Operation
from sublet.daemon.api.room_fields import Entity, OneRoom, Reason, RoomName
from sublet.daemon.api.rooms import RoomChange, RoomDetail
from sublet.policy.decision import Action

MAX_CHANGES = 64

ExtensionId = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[a-z0-9][a-z0-9-]*$")]
Power = Annotated[int, Field(ge=0, le=100)]


class ConfigureRoom(OneRoom):
    """Changes to a room's config; what is not named stays as it is.

    ``levels`` are the powers that are asked for, ``powers`` those that members have; ``fields`` names anything else
    with dots, such as ``ext.channels.hints``.
    """

    name: RoomName | None = None
    policy: Literal["open", "knock", "invite"] | None = None
    enable: Annotated[list[ExtensionId], Field(max_length=MAX_CHANGES)] = Field(default_factory=list)
    disable: Annotated[list[ExtensionId], Field(max_length=MAX_CHANGES)] = Field(default_factory=list)
    levels: Annotated[dict[Literal["default", "events_default", "admin"], Power], Field(max_length=3)] = Field(
        default_factory=dict
    )
    powers: Annotated[dict[Entity, Power], Field(max_length=MAX_CHANGES)] = Field(default_factory=dict)
    roles: Annotated[dict[Entity, Literal["member", "admin", "owner"]], Field(max_length=MAX_CHANGES)] = Field(
        default_factory=dict
    )
    fields: Annotated[dict[str, JsonValue], Field(max_length=MAX_CHANGES)] = Field(default_factory=dict)


class Knock(OneRoom):
    """Ask to be let in; ``text`` is read by who decides."""

    text: Reason = ""


class DeclineKnock(OneRoom):
    """Answer a knock with no."""

    entity: Entity


class RemoveMember(OneRoom):
    """Take somebody out of a room, or keep them out."""

    entity: Entity
    reason: Reason = ""


_ROOM = "/v1/rooms/{room_id}"
_MANAGES = Asks(Action.ROOM_MANAGE, "{room_id}")

CONFIGURE_ROOM = Operation(
    "rooms.configure",
    "PATCH",
    _ROOM,
    ConfigureRoom,
    RoomDetail,
    asks=_MANAGES,
    summary="Change a room's config, and return the room.",
)
KNOCK_AT_ROOM = Operation(
    "rooms.knock",
    "POST",
    f"{_ROOM}/knock",
    Knock,
    RoomChange,
    asks=_MANAGES,
    summary="Ask to be let in, at a room that is asked for from peers; an invitation is the yes.",
)
DECLINE_KNOCK = Operation(
    "rooms.decline",
    "POST",
    f"{_ROOM}/decline",
    DeclineKnock,
    RoomChange,
    asks=_MANAGES,
    summary="Answer a knock with no.",
)
KICK_MEMBER = Operation(
    "rooms.kick",
    "POST",
    f"{_ROOM}/kick",
    RemoveMember,
    RoomChange,
    asks=_MANAGES,
    summary="Remove somebody, who may come back as others come in.",
)
BAN_ENTITY = Operation(
    "rooms.ban",
    "POST",
    f"{_ROOM}/ban",
    RemoveMember,
    RoomChange,
    asks=_MANAGES,
    summary="Remove somebody, member or not, who comes in again only by an admin.",
)
UNBAN_ENTITY = Operation(
    "rooms.unban",
    "POST",
    f"{_ROOM}/unban",
    RemoveMember,
    RoomChange,
    asks=_MANAGES,
    summary="Lift a ban; that makes nobody a member.",
)

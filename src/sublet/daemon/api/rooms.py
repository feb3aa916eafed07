"""Operations on rooms: who speaks there, opening them, finding them, coming and going (ezagent 4)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue

from sublet.daemon.api.base import Request, View
from sublet.daemon.api.operation import Asks, Hides, Nothing, Operation
from sublet.daemon.api.room_fields import Entity, OneRoom, RoomName
from sublet.policy.decision import Action

Level = Literal["members", "transport_only"]


class CreateRoom(Request):
    """Open a room."""

    name: RoomName
    policy: Literal["open", "knock", "invite"] = "invite"
    encryption: Level | None = Field(
        default=None,
        description="From whom what is said there is hidden: members (all but members) or transport_only (who taps a "
        "link); by default as messaging.encryption of config.json has it",
    )


class InviteToRoom(OneRoom):
    """Make somebody a member."""

    entity: Entity


class WhoAmI(View):
    """As whom the caller speaks in rooms."""

    entity_id: str
    level: int | None = Field(default=None, description="Compliance level of ezagent")


class RoomView(View):
    """A room as a member sees it."""

    room_id: str
    name: str
    policy: str
    role: str
    members: int
    kind: Literal["talk", "delegation"] = Field(
        default="talk", description="delegation: opened by a daemon for a delegation, whose agent talks there"
    )
    closed: bool = Field(default=False, description="Whether nobody but its owner may write there any more")
    last_activity: str = Field(default="", description="When something was last said, or when it was opened")
    encryption: str = Field(default="transport_only", description="members: only members read what is said there")


class RoomDetail(RoomView):
    """A room with its members and its config, by names with dots."""

    roles: dict[str, str] = Field(description="Role of each member")
    powers: dict[str, int] = Field(default={}, description="Power of each member")
    invited: dict[str, str] = Field(
        default={}, description="Who was invited and has not come in: pending (a member who has not answered), declined"
    )
    knocks: dict[str, str] = Field(default={}, description="Who asks to be let in, and with what words")
    config: dict[str, JsonValue] = Field(default={})
    apart: dict[str, str] = Field(
        default={}, description="Members whose daemon is another version of Sublet that no message reaches, and why"
    )
    clocks: dict[str, str] = Field(
        default={}, description="Members whose daemon has a clock that differs from this machine's, and by how much"
    )


class RoomChange(View):
    """What was done to a room."""

    room_id: str
    name: str = ""
    entity: str = ""
    apart: str = Field(default="", description="Why the daemon of that entity learns nothing of it for now")
    encryption: str = Field(default="", description="Of a room that was opened: members, or transport_only")


_ROOM = "/v1/rooms/{room_id}"
_MANAGES = Asks(Action.ROOM_MANAGE, "{room_id}")

WHOAMI = Operation(
    "rooms.whoami",
    "GET",
    "/v1/whoami",
    Nothing,
    WhoAmI,
    asks=Asks(Action.ROOM_READ),
    summary="Return as whom the caller speaks.",
)
LIST_ROOMS = Operation(
    "rooms.list",
    "GET",
    "/v1/rooms",
    Nothing,
    list[RoomView],
    asks=Asks(Action.ROOM_READ),
    summary="Return the rooms that the caller is a member of and may read: those of delegations, and then closed ones, "
    "last; of each the newest activity first.",
    hides=Hides(Action.ROOM_READ, "room_id"),
)
CREATE_ROOM = Operation(
    "rooms.create",
    "POST",
    "/v1/rooms",
    CreateRoom,
    RoomChange,
    asks=Asks(Action.ROOM_MANAGE),
    summary="Open a room that the caller owns.",
    status=201,
)
GET_ROOM = Operation(
    "rooms.get",
    "GET",
    _ROOM,
    OneRoom,
    RoomDetail,
    asks=Asks(Action.ROOM_READ, "{room_id}"),
    summary="Return a room with its members and its config.",
)
INVITE_TO_ROOM = Operation(
    "rooms.invite",
    "POST",
    f"{_ROOM}/invite",
    InviteToRoom,
    RoomChange,
    asks=_MANAGES,
    summary="Invite an entity, which is in the room once it accepts; removing it takes that back.",
)
JOIN_ROOM = Operation(
    "rooms.join",
    "POST",
    f"{_ROOM}/join",
    OneRoom,
    RoomChange,
    asks=_MANAGES,
    summary="Become a member of an open room, asking peers for it where it is not known here, or accept an invitation.",
)
LEAVE_ROOM = Operation(
    "rooms.leave",
    "POST",
    f"{_ROOM}/leave",
    OneRoom,
    RoomChange,
    asks=_MANAGES,
    summary="Leave a room.",
)

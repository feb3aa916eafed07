"""Operations on invitations: rooms that others bring ours into, of which nothing is here before somebody says yes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sublet.daemon.api.base import View
from sublet.daemon.api.operation import Asks, Hides, Nothing, Operation
from sublet.daemon.api.room_fields import OneRoom
from sublet.policy.decision import Action


class InvitationView(View):
    """A room that one of ours is invited to."""

    room_id: str
    name: str = Field(description="What its members call it: their words")
    by: str = Field(description="Who invites")
    whom: list[str] = Field(description="Who is invited, of this daemon")
    members: list[str] = Field(description="Who is in it; of many, who invites and the first by name")
    member_count: int
    answer: Literal["pending", "accepted", "declined"] = Field(
        description="What was said to it; accepted: it comes as soon as somebody who is in it is reached"
    )
    at: str = Field(description="When it came, or was answered")


class InvitationChange(View):
    """What was said to an invitation."""

    room_id: str
    name: str = ""
    here: bool = Field(default=False, description="Whether the room is here now")


_ROOM = "/v1/invitations/{room_id}"
_MANAGES = Asks(Action.ROOM_MANAGE, "{room_id}")

LIST_INVITATIONS = Operation(
    "invitations.list",
    "GET",
    "/v1/invitations",
    Nothing,
    list[InvitationView],
    asks=Asks(Action.ROOM_READ),
    summary="Return the invitations that wait, and those that were answered lately, the oldest first.",
    hides=Hides(Action.ROOM_READ, "room_id"),
)
ACCEPT_INVITATION = Operation(
    "invitations.accept",
    "POST",
    f"{_ROOM}/accept",
    OneRoom,
    InvitationChange,
    asks=_MANAGES,
    summary="Come into a room that the caller is invited to.",
)
DECLINE_INVITATION = Operation(
    "invitations.decline",
    "POST",
    f"{_ROOM}/decline",
    OneRoom,
    InvitationChange,
    asks=_MANAGES,
    summary="Say no to an invitation, which those who are in the room are told.",
)

"""What rooms offer faces. Every method asks policy before it does anything; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.room_models import (
    ChannelView,
    CreateRoom,
    InviteToRoom,
    MessageSent,
    MessageView,
    ReadMessages,
    RoomChange,
    RoomDetail,
    RoomEvents,
    RoomView,
    SendMessage,
    WatchRooms,
    WhoAmI,
)
from sublet.policy.model import Subject


class RoomApi(Protocol):
    """The operations around rooms; who is a member may do what the room allows, as the entity of the caller."""

    async def whoami(self, caller: Subject) -> WhoAmI:
        """Return as whom the caller speaks."""

    async def create_room(self, request: CreateRoom, caller: Subject) -> RoomChange:
        """Open a room that the caller owns."""

    async def list_rooms(self, caller: Subject) -> list[RoomView]:
        """Return the rooms that the caller is a member of."""

    async def get_room(self, room_id: str, caller: Subject) -> RoomDetail:
        """Return one of them."""

    async def invite_to_room(self, room_id: str, request: InviteToRoom, caller: Subject) -> RoomChange:
        """Make an entity a member."""

    async def join_room(self, room_id: str, caller: Subject) -> RoomChange:
        """Become a member of an open room, asking peers for it where it is not known here."""

    async def leave_room(self, room_id: str, caller: Subject) -> RoomChange:
        """Leave a room."""

    async def send_message(self, room_id: str, request: SendMessage, caller: Subject) -> MessageSent:
        """Say something; it is durable when this returns."""

    async def read_messages(self, room_id: str, request: ReadMessages, caller: Subject) -> list[MessageView]:
        """Return messages in order."""

    async def list_threads(self, room_id: str, request: ReadMessages, caller: Subject) -> list[MessageView]:
        """Return the messages of a room that threads begin with."""

    async def list_channels(self, caller: Subject) -> list[ChannelView]:
        """Return the channels of all rooms of the caller, the last used first."""

    async def watch_rooms(self, request: WatchRooms, caller: Subject) -> RoomEvents:
        """Return what has happened after a cursor, waiting for it where it is told to."""

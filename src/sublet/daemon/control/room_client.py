"""Typed client of the rooms' area: ``RoomApi`` as its owner calls it."""

from __future__ import annotations

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
from sublet.daemon.control.room_paths import room_path
from sublet.daemon.control.transport import Transport


class RoomClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def whoami(self) -> WhoAmI:
        """Return as whom the caller speaks."""
        return await self._transport.fetch(WhoAmI, "GET", "/v1/whoami")

    async def create_room(self, request: CreateRoom) -> RoomChange:
        """Open a room."""
        return await self._transport.fetch(RoomChange, "POST", "/v1/rooms", body=request)

    async def list_rooms(self) -> list[RoomView]:
        """Return the rooms that the caller is a member of."""
        return await self._transport.fetch_many(RoomView, "/v1/rooms")

    async def get_room(self, room_id: str) -> RoomDetail:
        """Return one of them."""
        return await self._transport.fetch(RoomDetail, "GET", room_path(room_id))

    async def invite_to_room(self, room_id: str, entity: str) -> RoomChange:
        """Make an entity a member."""
        body = InviteToRoom(entity=entity)
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/invite", body=body)

    async def join_room(self, room_id: str) -> RoomChange:
        """Become a member of an open room."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/join", body={})

    async def leave_room(self, room_id: str) -> RoomChange:
        """Leave a room."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/leave", body={})

    async def send_message(self, room_id: str, request: SendMessage) -> MessageSent:
        """Say something."""
        return await self._transport.fetch(MessageSent, "POST", f"{room_path(room_id)}/messages", body=request)

    async def read_messages(self, room_id: str, request: ReadMessages) -> list[MessageView]:
        """Return messages in order."""
        query = request.model_dump(exclude_none=True)
        return await self._transport.fetch_many(MessageView, f"{room_path(room_id)}/messages", query)

    async def list_threads(self, room_id: str, request: ReadMessages) -> list[MessageView]:
        """Return the messages of a room that threads begin with."""
        query = request.model_dump(include={"limit", "before"}, exclude_none=True)
        return await self._transport.fetch_many(MessageView, f"{room_path(room_id)}/threads", query)

    async def list_channels(self) -> list[ChannelView]:
        """Return the channels of all rooms."""
        return await self._transport.fetch_many(ChannelView, "/v1/channels")

    async def watch_rooms(self, request: WatchRooms) -> RoomEvents:
        """Return what has happened after a cursor."""
        return await self._transport.fetch(RoomEvents, "GET", "/v1/room-events", request.model_dump(exclude_none=True))

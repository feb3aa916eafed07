"""Typed clients beside ``RoomClient``: who is in a room, people, and watches."""

from __future__ import annotations

from sublet.daemon.api.room_member_models import ConfigureRoom, DeclineKnock, Knock, RemoveMember
from sublet.daemon.api.room_models import RoomChange, RoomCursor, RoomDetail
from sublet.daemon.api.room_people_models import (
    FindProfile,
    MarkRead,
    ProfileView,
    ReadingView,
    SearchProfiles,
    UpdateProfile,
)
from sublet.daemon.api.talk_models import SetWatch, UnsetWatch, Watches
from sublet.daemon.control.room_paths import room_path
from sublet.daemon.control.transport import Transport


class RoomMemberClient:
    """``RoomMemberApi`` as its owner calls it. Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def configure_room(self, room_id: str, request: ConfigureRoom) -> RoomDetail:
        """Change a room's config."""
        return await self._transport.fetch(RoomDetail, "PATCH", room_path(room_id), body=request)

    async def knock_at_room(self, room_id: str, request: Knock) -> RoomChange:
        """Ask to be let in."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/knock", body=request)

    async def decline_knock(self, room_id: str, request: DeclineKnock) -> RoomChange:
        """Answer a knock with no."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/decline", body=request)

    async def kick_member(self, room_id: str, request: RemoveMember) -> RoomChange:
        """Remove somebody."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/kick", body=request)

    async def ban_entity(self, room_id: str, request: RemoveMember) -> RoomChange:
        """Remove somebody and keep them out."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/ban", body=request)

    async def unban_entity(self, room_id: str, request: RemoveMember) -> RoomChange:
        """Lift a ban."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/unban", body=request)


class RoomPeopleClient:
    """``RoomPeopleApi`` as its owner calls it. Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get_profile(self, request: FindProfile) -> ProfileView:
        """Return a profile."""
        return await self._transport.fetch(ProfileView, "GET", "/v1/profile", request.model_dump(exclude_none=True))

    async def update_profile(self, request: UpdateProfile) -> ProfileView:
        """Change one's own profile."""
        return await self._transport.fetch(ProfileView, "PATCH", "/v1/profile", body=request)

    async def search_profiles(self, request: SearchProfiles) -> list[ProfileView]:
        """Return the profiles that hold all words of a query."""
        return await self._transport.fetch_many(ProfileView, "/v1/profiles", {"query": request.query})

    async def mark_read(self, room_id: str, request: MarkRead) -> RoomChange:
        """Say up to where a room is read."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/reading", body=request)

    async def get_reading(self, room_id: str) -> ReadingView:
        """Return how much is unread, and how far each member has read."""
        return await self._transport.fetch(ReadingView, "GET", f"{room_path(room_id)}/reading")


class RoomWatchClient:
    """Watches, of ``TalkApi``, as their owner calls it. Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def watches(self) -> Watches:
        """Return the caller's watches."""
        return await self._transport.fetch(Watches, "GET", "/v1/room-watches")

    async def newest(self) -> RoomCursor:
        """Return the cursor after all that has happened."""
        return await self._transport.fetch(RoomCursor, "GET", "/v1/room-cursor")

    async def set_watch(self, request: SetWatch) -> Watches:
        """Put a watch, and return all."""
        return await self._transport.fetch(Watches, "POST", "/v1/room-watches", body=request)

    async def unset_watch(self, request: UnsetWatch) -> Watches:
        """End a watch, and return the others."""
        query = request.model_dump(exclude_none=True)
        return await self._transport.fetch(Watches, "DELETE", "/v1/room-watches", query)

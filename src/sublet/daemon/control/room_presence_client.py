"""Typed client of presence and drafts: ``RoomPresenceApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.room_models import RoomChange
from sublet.daemon.api.room_presence_models import DraftView, PresenceView, SaveDraft, SetPresence
from sublet.daemon.control.room_paths import room_path
from sublet.daemon.control.transport import Transport


class RoomPresenceClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def set_presence(self, room_id: str, request: SetPresence) -> RoomChange:
        """Tell a room in passing what the caller is about."""
        return await self._transport.fetch(RoomChange, "POST", f"{room_path(room_id)}/presence", body=request)

    async def list_presence(self, room_id: str) -> list[PresenceView]:
        """Return the members who are there."""
        return await self._transport.fetch_many(PresenceView, f"{room_path(room_id)}/presence")

    async def save_draft(self, room_id: str, request: SaveDraft) -> DraftView:
        """Keep what the caller has begun to write."""
        return await self._transport.fetch(DraftView, "POST", f"{room_path(room_id)}/draft", body=request)

    async def load_draft(self, room_id: str) -> DraftView:
        """Return what the caller has begun to write."""
        return await self._transport.fetch(DraftView, "GET", f"{room_path(room_id)}/draft")

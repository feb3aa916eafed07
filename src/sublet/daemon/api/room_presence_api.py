"""Who is there, and what is not sent yet, as faces call it. Every method asks policy; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.room_models import RoomChange
from sublet.daemon.api.room_presence_models import DraftView, PresenceView, SaveDraft, SetPresence
from sublet.policy.model import Subject


class RoomPresenceApi(Protocol):
    """Presence and drafts, as the entity of the caller."""

    async def set_presence(self, room_id: str, request: SetPresence, caller: Subject) -> RoomChange:
        """Tell a room in passing what the caller is about."""

    async def list_presence(self, room_id: str, caller: Subject) -> list[PresenceView]:
        """Return the members who are there."""

    async def save_draft(self, room_id: str, request: SaveDraft, caller: Subject) -> DraftView:
        """Keep what the caller has begun to write."""

    async def load_draft(self, room_id: str, caller: Subject) -> DraftView:
        """Return what the caller has begun to write."""

"""Serves the operations on presence and drafts."""

from __future__ import annotations

from sublet.daemon.api.room_fields import OneRoom
from sublet.daemon.api.room_presence import (
    LIST_PRESENCE,
    LOAD_DRAFT,
    SAVE_DRAFT,
    SET_PRESENCE,
    DraftView,
    PresenceView,
    SaveDraft,
    SetPresence,
)
from sublet.daemon.api.rooms import RoomChange
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfRooms
from sublet.messaging.calls import people_calls
from sublet.policy.decision import Subject


class RoomPresenceService(OfRooms):
    """Serves the operations of ``api.room_presence``."""

    @serves(SET_PRESENCE)
    async def set_presence(self, request: SetPresence, caller: Subject) -> RoomChange:
        await self._speaking.call(caller, people_calls.set_presence, **request.model_dump(exclude_none=True))
        return RoomChange(room_id=request.room_id)

    @serves(LIST_PRESENCE)
    async def list_presence(self, request: OneRoom, caller: Subject) -> list[PresenceView]:
        found = await self._speaking.call(caller, people_calls.list_presence, room_id=request.room_id)
        return [PresenceView.model_validate(one) for one in found]

    @serves(SAVE_DRAFT)
    async def save_draft(self, request: SaveDraft, caller: Subject) -> DraftView:
        kept = await self._speaking.call(
            caller, people_calls.save_draft, room_id=request.room_id, body=request.body, reply_to=request.reply_to
        )
        return DraftView.model_validate({"room_id": request.room_id, **kept})

    @serves(LOAD_DRAFT)
    async def load_draft(self, request: OneRoom, caller: Subject) -> DraftView:
        kept = await self._speaking.call(caller, people_calls.load_draft, room_id=request.room_id)
        return DraftView.model_validate({"room_id": request.room_id, **kept})

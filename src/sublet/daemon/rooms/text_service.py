"""Serves the operations on texts that several write."""

from __future__ import annotations

from sublet.daemon.api.room_fields import OneMessage
from sublet.daemon.api.room_texts import (
    EDIT_TEXT,
    GET_ACCESS,
    GET_TEXT,
    SHARE_TEXT,
    EditText,
    ShareText,
    TextAccess,
    TextView,
)
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfRooms
from sublet.messaging.calls import message_calls as texts
from sublet.policy.decision import Subject


class RoomTextService(OfRooms):
    """Serves the operations of ``api.room_texts``."""

    @serves(GET_TEXT)
    async def get_text(self, request: OneMessage, caller: Subject) -> TextView:
        return await self._text(request, caller)

    @serves(EDIT_TEXT)
    async def edit_text(self, request: EditText, caller: Subject) -> TextView:
        room_id, ref_id = request.room_id, request.ref_id
        edits = [(one.index, one.delete, one.insert) for one in request.edits]
        await self._speaking.call(
            caller, texts.patch_text, room_id=room_id, ref_id=ref_id, edits=edits, base=request.base
        )
        return await self._text(request, caller)

    @serves(GET_ACCESS)
    async def get_access(self, request: OneMessage, caller: Subject) -> TextAccess:
        room_id, ref_id = request.room_id, request.ref_id
        found = await self._speaking.call(caller, texts.get_access, room_id=room_id, ref_id=ref_id)
        return TextAccess(room_id=room_id, ref_id=ref_id, **found)

    @serves(SHARE_TEXT)
    async def share_text(self, request: ShareText, caller: Subject) -> TextAccess:
        room_id, ref_id = request.room_id, request.ref_id
        found = await self._speaking.call(
            caller, texts.update_access, room_id=room_id, ref_id=ref_id, mode=request.mode, editors=request.editors
        )
        return TextAccess(room_id=room_id, ref_id=ref_id, **found)

    async def _text(self, text: OneMessage, caller: Subject) -> TextView:
        room_id, ref_id = text.room_id, text.ref_id
        found = await self._speaking.call(caller, texts.get_text, room_id=room_id, ref_id=ref_id)
        return TextView(
            room_id=room_id,
            ref_id=ref_id,
            owner=found["owner"],
            mode=found["mode"],
            editors=found["editors"],
            updated_at=found["updated_at"],
            text=found["text"],
            may_edit=found["may_edit"],
        )

"""Serves the operations on texts that several write."""

from __future__ import annotations

from typing import Any

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
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.model import Subject

_KEPT = frozenset(TextView.model_fields)


class RoomTextService:
    """Serves the operations of ``api.room_texts``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    @serves(GET_TEXT)
    async def get_text(self, request: OneMessage, caller: Subject) -> TextView:
        return await self._text(request, caller)

    @serves(EDIT_TEXT)
    async def edit_text(self, request: EditText, caller: Subject) -> TextView:
        edits = [(one.index, one.delete, one.insert) for one in request.edits]
        arguments = {"ref_id": request.ref_id, "edits": edits, "base": request.base}
        await self._speaking.call(caller, "collab.patch", room_id=request.room_id, **arguments)
        return await self._text(request, caller)

    @serves(GET_ACCESS)
    async def get_access(self, request: OneMessage, caller: Subject) -> TextAccess:
        found = await self._speaking.call(caller, "collab.get_acl", room_id=request.room_id, ref_id=request.ref_id)
        return TextAccess(room_id=request.room_id, ref_id=request.ref_id, **found)

    @serves(SHARE_TEXT)
    async def share_text(self, request: ShareText, caller: Subject) -> TextAccess:
        arguments: dict[str, Any] = {"ref_id": request.ref_id, "mode": request.mode, "editors": request.editors}
        found = await self._speaking.call(caller, "collab.update_acl", room_id=request.room_id, **arguments)
        return TextAccess(room_id=request.room_id, ref_id=request.ref_id, **found)

    async def _text(self, text: OneMessage, caller: Subject) -> TextView:
        found = await self._speaking.call(caller, "collab.connect", room_id=text.room_id, ref_id=text.ref_id)
        known = {name: value for name, value in found.items() if name in _KEPT}
        return TextView(room_id=text.room_id, ref_id=text.ref_id, **known)

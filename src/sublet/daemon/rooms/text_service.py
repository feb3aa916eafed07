"""``RoomTextApi``: texts that several write."""

from __future__ import annotations

from typing import Any

from sublet.daemon.api.room_text_models import EditText, ShareText, TextAccess, TextView
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations.asking import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.model import Action, Subject

_KEPT = frozenset(TextView.model_fields)


@operations
class RoomTextService:
    """Implements ``RoomTextApi``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    async def get_text(self, room_id: str, ref_id: str, caller: Subject) -> TextView:
        """``RoomTextApi.get_text``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        return await self._text(room_id, ref_id, caller)

    async def edit_text(self, room_id: str, ref_id: str, request: EditText, caller: Subject) -> TextView:
        """``RoomTextApi.edit_text``."""
        size = sum(len(one.insert.encode("utf-8", "surrogatepass")) for one in request.edits)
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=size)
        edits = [(one.index, one.delete, one.insert) for one in request.edits]
        arguments = {"ref_id": ref_id, "edits": edits, "base": request.base}
        await self._speaking.call(caller, "collab.patch", room_id=room_id, **arguments)
        return await self._text(room_id, ref_id, caller)

    async def get_access(self, room_id: str, ref_id: str, caller: Subject) -> TextAccess:
        """``RoomTextApi.get_access``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        found = await self._speaking.call(caller, "collab.get_acl", room_id=room_id, ref_id=ref_id)
        return TextAccess(room_id=room_id, ref_id=ref_id, **found)

    async def share_text(self, room_id: str, ref_id: str, request: ShareText, caller: Subject) -> TextAccess:
        """``RoomTextApi.share_text``."""
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=0)
        arguments: dict[str, Any] = {"ref_id": ref_id, "mode": request.mode, "editors": request.editors}
        found = await self._speaking.call(caller, "collab.update_acl", room_id=room_id, **arguments)
        return TextAccess(room_id=room_id, ref_id=ref_id, **found)

    async def _text(self, room_id: str, ref_id: str, caller: Subject) -> TextView:
        found = await self._speaking.call(caller, "collab.connect", room_id=room_id, ref_id=ref_id)
        known = {name: value for name, value in found.items() if name in _KEPT}
        return TextView(room_id=room_id, ref_id=ref_id, **known)

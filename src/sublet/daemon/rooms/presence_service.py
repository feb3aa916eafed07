"""``RoomPresenceApi``: who is there, and what is not sent yet."""

from __future__ import annotations

from sublet.daemon.api.room_models import RoomChange
from sublet.daemon.api.room_presence_models import DraftView, PresenceView, SaveDraft, SetPresence
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations.asking import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.model import Action, Subject


@operations
class RoomPresenceService:
    """Implements ``RoomPresenceApi``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    async def set_presence(self, room_id: str, request: SetPresence, caller: Subject) -> RoomChange:
        """``RoomPresenceApi.set_presence``."""
        await self._may_write(room_id, request.status or "", caller)
        given = request.model_dump(exclude_none=True)
        await self._speaking.call(caller, "presence.set", room_id=room_id, **given)
        return RoomChange(room_id=room_id)

    async def list_presence(self, room_id: str, caller: Subject) -> list[PresenceView]:
        """``RoomPresenceApi.list_presence``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        found = await self._speaking.call(caller, "presence.list", room_id=room_id)
        return [PresenceView.model_validate(one) for one in found]

    async def save_draft(self, room_id: str, request: SaveDraft, caller: Subject) -> DraftView:
        """``RoomPresenceApi.save_draft``."""
        await self._may_write(room_id, request.body, caller)
        arguments = {"body": request.body, "reply_to": request.reply_to}
        kept = await self._speaking.call(caller, "drafts.save", room_id=room_id, **arguments)
        return DraftView.model_validate({"room_id": room_id, **kept})

    async def load_draft(self, room_id: str, caller: Subject) -> DraftView:
        """``RoomPresenceApi.load_draft``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        kept = await self._speaking.call(caller, "drafts.load", room_id=room_id)
        return DraftView.model_validate({"room_id": room_id, **kept})

    async def _may_write(self, room_id: str, text: str, caller: Subject) -> None:
        size = len(text.encode("utf-8", "surrogatepass"))
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=size)

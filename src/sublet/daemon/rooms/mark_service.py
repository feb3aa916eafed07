"""``RoomMarkApi``: what is done to messages that are there."""

from __future__ import annotations

from sublet.daemon.api.room_mark_models import EditMessage, MessageChange, MessageVersion, Moderate, React
from sublet.daemon.api.room_models import MessageView
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.daemon.rooms.views import message_view
from sublet.policy.model import Action, Subject


@operations
class RoomMarkService:
    """Implements ``RoomMarkApi``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    async def get_message(self, room_id: str, ref_id: str, caller: Subject) -> MessageView:
        """``RoomMarkApi.get_message``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        return message_view(await self._speaking.call(caller, "timeline.get_ref", room_id=room_id, ref_id=ref_id))

    async def add_reaction(self, room_id: str, ref_id: str, request: React, caller: Subject) -> MessageChange:
        """``RoomMarkApi.add_reaction``."""
        await self._may_send(room_id, request.emoji, caller)
        arguments = {"ref_id": ref_id, "emoji": request.emoji}
        done = await self._speaking.call(caller, "reactions.add", room_id=room_id, **arguments)
        return MessageChange(room_id=room_id, ref_id=ref_id, changed=done["added"])

    async def remove_reaction(self, room_id: str, ref_id: str, request: React, caller: Subject) -> MessageChange:
        """``RoomMarkApi.remove_reaction``."""
        await self._may_send(room_id, request.emoji, caller)
        arguments = {"ref_id": ref_id, "emoji": request.emoji}
        done = await self._speaking.call(caller, "reactions.remove", room_id=room_id, **arguments)
        return MessageChange(room_id=room_id, ref_id=ref_id, changed=done["removed"])

    async def edit_message(self, room_id: str, ref_id: str, request: EditMessage, caller: Subject) -> MessageChange:
        """``RoomMarkApi.edit_message``."""
        await self._may_send(room_id, request.body, caller)
        arguments = {"ref_id": ref_id, "body": request.body}
        await self._speaking.call(caller, "mutable.update", room_id=room_id, **arguments)
        return MessageChange(room_id=room_id, ref_id=ref_id)

    async def list_versions(self, room_id: str, ref_id: str, caller: Subject) -> list[MessageVersion]:
        """``RoomMarkApi.list_versions``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        found = await self._speaking.call(caller, "mutable.versions", room_id=room_id, ref_id=ref_id)
        return [MessageVersion(body=one["body_snapshot"], at=one["edited_at"]) for one in found]

    async def delete_message(self, room_id: str, ref_id: str, caller: Subject) -> MessageChange:
        """``RoomMarkApi.delete_message``."""
        await self._may_send(room_id, "", caller)
        done = await self._speaking.call(caller, "message.delete", room_id=room_id, ref_id=ref_id)
        return MessageChange(room_id=room_id, ref_id=ref_id, changed=done["deleted"])

    async def moderate_message(self, room_id: str, ref_id: str, request: Moderate, caller: Subject) -> MessageChange:
        """``RoomMarkApi.moderate_message``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        operation = f"moderation.{request.action}"
        done = await self._speaking.call(caller, operation, room_id=room_id, ref_id=ref_id, reason=request.reason)
        return MessageChange(room_id=room_id, ref_id=ref_id, changed=done["changed"])

    async def _may_send(self, room_id: str, text: str, caller: Subject) -> None:
        size = len(text.encode("utf-8", "surrogatepass"))
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=size)

"""``RoomApi``: rooms for faces, each operation as the entity of whoever asks."""

from __future__ import annotations

from typing import Any, Final

from sublet.daemon.api.room_models import (
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
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.model import Action, Resource, Subject

_EXT: Final = "ext."


@operations
class RoomService:
    """Implements ``RoomApi``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    async def whoami(self, caller: Subject) -> WhoAmI:
        """``RoomApi.whoami``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        service = await self._speaking.service()
        return WhoAmI(entity_id=self._speaking.entity(caller), level=service.level)

    async def create_room(self, request: CreateRoom, caller: Subject) -> RoomChange:
        """``RoomApi.create_room``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, "*")
        made = await self._speaking.call(caller, "room.create", name=request.name, policy=request.policy)
        return RoomChange(room_id=made["room_id"], name=made["name"])

    async def list_rooms(self, caller: Subject) -> list[RoomView]:
        """``RoomApi.list_rooms``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        found = await self._speaking.call(caller, "room.list")
        return [RoomView.model_validate(room) for room in found if self._may_read(caller, room["room_id"])]

    async def get_room(self, room_id: str, caller: Subject) -> RoomDetail:
        """``RoomApi.get_room``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        found = await self._speaking.call(caller, "room.get", room_id=room_id)
        roles = {entity: member["role"] for entity, member in found["members"].items()}
        return RoomDetail.model_validate({**found, "members": len(roles), "roles": roles})

    async def invite_to_room(self, room_id: str, request: InviteToRoom, caller: Subject) -> RoomChange:
        """``RoomApi.invite_to_room``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        await self._speaking.call(caller, "room.invite", room_id=room_id, entity=request.entity)
        return RoomChange(room_id=room_id, entity=request.entity)

    async def join_room(self, room_id: str, caller: Subject) -> RoomChange:
        """``RoomApi.join_room``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        await (await self._speaking.service()).find_room(room_id)
        joined = await self._speaking.call(caller, "room.join", room_id=room_id)
        return RoomChange(room_id=room_id, name=joined["name"])

    async def leave_room(self, room_id: str, caller: Subject) -> RoomChange:
        """``RoomApi.leave_room``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        await self._speaking.call(caller, "room.leave", room_id=room_id)
        return RoomChange(room_id=room_id)

    async def send_message(self, room_id: str, request: SendMessage, caller: Subject) -> MessageSent:
        """``RoomApi.send_message``."""
        size = len(request.body.encode("utf-8", "surrogatepass"))
        await self._gate.ask(caller, Action.ROOM_SEND, room_id, size_bytes=size)
        ext = {} if request.reply_to is None else {"ext": {"reply_to": request.reply_to}}
        sent = await self._speaking.call(caller, "message.send", room_id=room_id, body=request.body, **ext)
        return MessageSent.model_validate(sent)

    async def read_messages(self, room_id: str, request: ReadMessages, caller: Subject) -> list[MessageView]:
        """``RoomApi.read_messages``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        page = await self._speaking.call(
            caller, "timeline.list", room_id=room_id, limit=request.limit, before=request.before
        )
        return [_message(ref) for ref in page["refs"]]

    async def watch_rooms(self, request: WatchRooms, caller: Subject) -> RoomEvents:
        """``RoomApi.watch_rooms``."""
        await self._gate.ask(caller, Action.ROOM_READ, request.room_id or "*")
        service, me = await self._speaking.service(), self._speaking.entity(caller)
        if request.acknowledge is not None:
            await service.take_up(me, request.acknowledge, request.room_id)
        found = await service.watch(me, request.since, request.wait, request.room_id)
        events = [event for event in found["events"] if self._may_read(caller, event["room_id"])]
        return RoomEvents(events=events, cursor=found["cursor"], missed=found["missed"])

    def _may_read(self, caller: Subject, room_id: str) -> bool:
        """Tell whether a list may hold something of a room; nothing is written down."""
        return self._gate.foresee(caller, Action.ROOM_READ, Resource(room_id)).decision.allowed


def _message(ref: dict[str, Any]) -> MessageView:
    return MessageView(
        ref_id=ref["ref_id"],
        author=ref["author"],
        body=ref.get("body"),
        status=ref["status"],
        created_at=ref["created_at"],
        ext={name.removeprefix(_EXT): value for name, value in ref.items() if name.startswith(_EXT)},
    )

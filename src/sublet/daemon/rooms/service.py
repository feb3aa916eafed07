"""``RoomApi``: rooms for faces, each operation as the entity of whoever asks."""

from __future__ import annotations

from typing import Any

from sublet.daemon.api.room_models import (
    ChannelView,
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
from sublet.daemon.operations.asking import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.daemon.rooms.views import detail_of, message_view
from sublet.policy.model import Action, Resource, Subject


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
        shown = detail_of(await self._speaking.call(caller, "room.get", room_id=room_id))
        apart = {entity: why for entity in shown.roles if (why := self._speaking.apart(entity))}
        return shown.model_copy(update={"apart": apart})

    async def invite_to_room(self, room_id: str, request: InviteToRoom, caller: Subject) -> RoomChange:
        """``RoomApi.invite_to_room``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        await self._speaking.call(caller, "room.invite", room_id=room_id, entity=request.entity)
        return RoomChange(room_id=room_id, entity=request.entity, apart=self._speaking.apart(request.entity))

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
        given = request.model_dump(include={"reply_to", "thread", "channels", "media"})
        ext = {name: value for name, value in given.items() if value}
        if request.media and request.filename:
            ext["media"] = {"blob_hash": request.media, "filename": request.filename}
        arguments = {"body": request.body, **({"ext": ext} if ext else {})}
        sent = await self._speaking.call(caller, "message.send", room_id=room_id, **arguments)
        return MessageSent.model_validate(sent)

    async def read_messages(self, room_id: str, request: ReadMessages, caller: Subject) -> list[MessageView]:
        """``RoomApi.read_messages``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        paging: dict[str, Any] = {"limit": request.limit, "before": request.before}
        if request.channel is not None:
            arguments = {"channel": request.channel, **paging}
            page = await self._speaking.call(caller, "channels.refs", room_id=room_id, **arguments)
        elif request.thread is not None:
            arguments = {"root": request.thread, **paging}
            page = await self._speaking.call(caller, "threads.list", room_id=room_id, **arguments)
        else:
            arguments = {"peek": request.peek, **paging}
            page = await self._speaking.call(caller, "timeline.list", room_id=room_id, **arguments)
        return [message_view(ref) for ref in page["refs"]]

    async def list_threads(self, room_id: str, request: ReadMessages, caller: Subject) -> list[MessageView]:
        """``RoomApi.list_threads``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        paging = {"limit": request.limit, "before": request.before}
        page = await self._speaking.call(caller, "threads.list", room_id=room_id, **paging)
        return [message_view(ref) for ref in page["refs"]]

    async def list_channels(self, caller: Subject) -> list[ChannelView]:
        """``RoomApi.list_channels``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        return [ChannelView.model_validate(one) for one in await self._speaking.call(caller, "channels.list")]

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

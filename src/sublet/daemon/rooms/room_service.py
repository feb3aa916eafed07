"""Serves the operations on rooms, each as the entity of whoever asks."""

from __future__ import annotations

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import OneRoom
from sublet.daemon.api.rooms import (
    CREATE_ROOM,
    GET_ROOM,
    INVITE_TO_ROOM,
    JOIN_ROOM,
    LEAVE_ROOM,
    LIST_ROOMS,
    WHOAMI,
    CreateRoom,
    InviteToRoom,
    RoomChange,
    RoomDetail,
    RoomView,
    WhoAmI,
)
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfNamedRooms
from sublet.daemon.rooms.speaking import may_read
from sublet.daemon.rooms.views import detail_of, room_views
from sublet.messaging.calls import room_calls
from sublet.policy.decision import Subject


class RoomService(OfNamedRooms):
    """Serves the operations of ``api.rooms``."""

    @serves(WHOAMI)
    async def whoami(self, request: Nothing, caller: Subject) -> WhoAmI:
        service = await self._speaking.service()
        return WhoAmI(entity_id=self._speaking.entity(caller), level=service.level)

    @serves(LIST_ROOMS)
    async def list_rooms(self, request: Nothing, caller: Subject) -> list[RoomView]:
        found = await self._speaking.call(caller, room_calls.list_rooms)
        return room_views([room for room in found if may_read(self._gate, caller, room["room_id"])])

    @serves(CREATE_ROOM)
    async def create_room(self, request: CreateRoom, caller: Subject) -> RoomChange:
        made = await self._speaking.call(
            caller,
            room_calls.create,
            name=request.name,
            policy=request.policy,
            encryption=request.encryption or self._speaking.encryption,
        )
        entity = self._speaking.entity(caller)
        return RoomChange(room_id=made["room_id"], name=made["name"], entity=entity, encryption=made["encryption"])

    @serves(GET_ROOM)
    async def get_room(self, request: OneRoom, caller: Subject) -> RoomDetail:
        shown = detail_of(await self._speaking.call(caller, room_calls.get, room_id=request.room_id))
        apart = {entity: why for entity in shown.roles if (why := self._speaking.apart(entity))}
        clocks = {entity: how for entity in shown.roles if (how := self._speaking.other_clock(entity))}
        return shown.model_copy(update={"apart": apart, "clocks": clocks})

    @serves(INVITE_TO_ROOM)
    async def invite_to_room(self, request: InviteToRoom, caller: Subject) -> RoomChange:
        await self._finder.require_known(request.entity, caller)
        await self._speaking.call(caller, room_calls.invite, room_id=request.room_id, entity=request.entity)
        return await self._speaking.room_change(caller, request.room_id, request.entity)

    @serves(JOIN_ROOM)
    async def join_room(self, request: OneRoom, caller: Subject) -> RoomChange:
        service = await self._speaking.service()
        if any(one.room_id == request.room_id for one in await self._speaking.invitations(caller)):
            await service.invited.accept(request.room_id)
        else:
            await service.find_room(request.room_id)
        joined = await self._speaking.call(caller, room_calls.join, room_id=request.room_id)
        return RoomChange(room_id=request.room_id, name=joined["name"], entity=self._speaking.entity(caller))

    @serves(LEAVE_ROOM)
    async def leave_room(self, request: OneRoom, caller: Subject) -> RoomChange:
        left = await self._speaking.room_change(caller, request.room_id)
        await self._speaking.call(caller, room_calls.leave, room_id=request.room_id)
        return left

"""Serves the operations on members of rooms; what counts is decided by the room's own table."""

from __future__ import annotations

from typing import Any, Final

from sublet.daemon.api.room_members import (
    BAN_ENTITY,
    CONFIGURE_ROOM,
    DECLINE_KNOCK,
    KICK_MEMBER,
    KNOCK_AT_ROOM,
    UNBAN_ENTITY,
    ConfigureRoom,
    DeclineKnock,
    Knock,
    RemoveMember,
)
from sublet.daemon.api.rooms import RoomChange, RoomDetail
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfRooms
from sublet.daemon.rooms.views import detail_of
from sublet.messaging.calls import message_calls, room_calls
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError

MODERATION: Final = "moderation"
EXTENSIONS: Final = "enabled_extensions"


class RoomMemberService(OfRooms):
    """Serves the operations of ``api.room_members``."""

    @serves(CONFIGURE_ROOM)
    async def configure_room(self, request: ConfigureRoom, caller: Subject) -> RoomDetail:
        changes: dict[str, Any] = dict(request.fields)
        if request.name is not None:
            changes["name"] = request.name
        if request.policy is not None:
            changes["membership.policy"] = request.policy
        if request.enable or request.disable:
            enabled = await self._enabled(request.room_id, caller)
            wanted = dict.fromkeys([*enabled, *request.enable])
            changes[EXTENSIONS] = [one for one in wanted if one not in request.disable]
        changes |= {f"power_levels.{name}": level for name, level in request.levels.items()}
        if changes:
            await self._speaking.call(caller, room_calls.update_config, room_id=request.room_id, changes=changes)
        for entity, role in request.roles.items():
            await self._require_member(request.room_id, entity, caller)
            await self._speaking.call(caller, room_calls.invite, room_id=request.room_id, entity=entity, role=role)
        for entity, power in request.powers.items():
            await self._speaking.call(caller, room_calls.set_power, room_id=request.room_id, entity=entity, level=power)
        return detail_of(await self._speaking.call(caller, room_calls.get, room_id=request.room_id))

    @serves(KNOCK_AT_ROOM)
    async def knock_at_room(self, request: Knock, caller: Subject) -> RoomChange:
        await (await self._speaking.service()).find_room(request.room_id)
        await self._speaking.call(caller, room_calls.knock, room_id=request.room_id, text=request.text)
        return RoomChange(room_id=request.room_id, entity=self._speaking.entity(caller))

    @serves(DECLINE_KNOCK)
    async def decline_knock(self, request: DeclineKnock, caller: Subject) -> RoomChange:
        await self._speaking.call(caller, room_calls.decline, room_id=request.room_id, entity=request.entity)
        return await self._speaking.room_change(caller, request.room_id, request.entity)

    @serves(KICK_MEMBER)
    async def kick_member(self, request: RemoveMember, caller: Subject) -> RoomChange:
        await self._require_member(request.room_id, request.entity, caller)
        return await self._remove(request, caller, ban=False)

    @serves(BAN_ENTITY)
    async def ban_entity(self, request: RemoveMember, caller: Subject) -> RoomChange:
        done = await self._remove(request, caller, ban=True)
        await self._mark(request, caller, ban=True)
        return done

    @serves(UNBAN_ENTITY)
    async def unban_entity(self, request: RemoveMember, caller: Subject) -> RoomChange:
        if request.entity in await self._speaking.call(caller, room_calls.members, room_id=request.room_id):
            raise SubletError(LocalCode.CONFLICT, f"{request.entity} is a member", "Nobody who is banned is one.")
        # A removal that is none by a ban takes the place of the one that was.
        done = await self._remove(request, caller, ban=False)
        await self._mark(request, caller, ban=False)
        return done

    async def _remove(self, request: RemoveMember, caller: Subject, *, ban: bool) -> RoomChange:
        room_id, entity = request.room_id, request.entity
        await self._speaking.call(
            caller, room_calls.kick, room_id=room_id, entity=entity, reason=request.reason, ban=ban
        )
        return await self._speaking.room_change(caller, room_id, entity)

    async def _mark(self, request: RemoveMember, caller: Subject, *, ban: bool) -> None:
        """Mark also what somebody has said before, in rooms that have that (EXT-07)."""
        if MODERATION in await self._enabled(request.room_id, caller):
            decision = message_calls.ban if ban else message_calls.unban
            await self._speaking.call(
                caller, decision, room_id=request.room_id, entity=request.entity, reason=request.reason
            )

    async def _enabled(self, room_id: str, caller: Subject) -> list[str]:
        found = await self._speaking.call(caller, room_calls.get, room_id=room_id)
        return list(found["config"][EXTENSIONS])

    async def _require_member(self, room_id: str, entity: str, caller: Subject) -> None:
        if entity not in await self._speaking.call(caller, room_calls.members, room_id=room_id):
            raise SubletError(LocalCode.NOT_FOUND, f"{entity} is no member", "See: sublet room show ROOM")

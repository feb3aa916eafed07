"""``RoomMemberApi``: who is in a room, and its config; what counts is decided by the room's own table."""

from __future__ import annotations

from typing import Any, Final

from sublet.daemon.api.room_member_models import ConfigureRoom, DeclineKnock, Knock, RemoveMember
from sublet.daemon.api.room_models import RoomChange, RoomDetail
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations.asking import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.daemon.rooms.views import detail_of
from sublet.policy.model import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError

MODERATION: Final = "moderation"
EXTENSIONS: Final = "enabled_extensions"


@operations
class RoomMemberService:
    """Implements ``RoomMemberApi``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    async def configure_room(self, room_id: str, request: ConfigureRoom, caller: Subject) -> RoomDetail:
        """``RoomMemberApi.configure_room``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        changes: dict[str, Any] = dict(request.fields)
        if request.name is not None:
            changes["name"] = request.name
        if request.policy is not None:
            changes["membership.policy"] = request.policy
        if request.enable or request.disable:
            enabled = (await self._speaking.call(caller, "room.get", room_id=room_id))["config"][EXTENSIONS]
            wanted = dict.fromkeys([*enabled, *request.enable])
            changes[EXTENSIONS] = [one for one in wanted if one not in request.disable]
        changes |= {f"power_levels.{name}": level for name, level in request.levels.items()}
        if changes:
            await self._speaking.call(caller, "room.update_config", room_id=room_id, changes=changes)
        for entity, role in request.roles.items():
            await self._require_member(room_id, entity, caller)
            await self._speaking.call(caller, "room.invite", room_id=room_id, entity=entity, role=role)
        for entity, power in request.powers.items():
            await self._speaking.call(caller, "room.set_power", room_id=room_id, entity=entity, level=power)
        return detail_of(await self._speaking.call(caller, "room.get", room_id=room_id))

    async def knock_at_room(self, room_id: str, request: Knock, caller: Subject) -> RoomChange:
        """``RoomMemberApi.knock_at_room``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        await (await self._speaking.service()).find_room(room_id)
        await self._speaking.call(caller, "room.knock", room_id=room_id, text=request.text)
        return RoomChange(room_id=room_id)

    async def decline_knock(self, room_id: str, request: DeclineKnock, caller: Subject) -> RoomChange:
        """``RoomMemberApi.decline_knock``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        await self._speaking.call(caller, "room.decline", room_id=room_id, entity=request.entity)
        return RoomChange(room_id=room_id, entity=request.entity)

    async def kick_member(self, room_id: str, request: RemoveMember, caller: Subject) -> RoomChange:
        """``RoomMemberApi.kick_member``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        await self._require_member(room_id, request.entity, caller)
        return await self._remove(room_id, request, caller, ban=False)

    async def ban_entity(self, room_id: str, request: RemoveMember, caller: Subject) -> RoomChange:
        """``RoomMemberApi.ban_entity``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        done = await self._remove(room_id, request, caller, ban=True)
        await self._mark(room_id, "ban", request, caller)
        return done

    async def unban_entity(self, room_id: str, request: RemoveMember, caller: Subject) -> RoomChange:
        """``RoomMemberApi.unban_entity``."""
        await self._gate.ask(caller, Action.ROOM_MANAGE, room_id)
        if request.entity in await self._speaking.call(caller, "room.members", room_id=room_id):
            raise SubletError(LocalCode.CONFLICT, f"{request.entity} is a member", "Nobody who is banned is one.")
        # A removal that is none by a ban takes the place of the one that was.
        done = await self._remove(room_id, request, caller, ban=False)
        await self._mark(room_id, "unban", request, caller)
        return done

    async def _remove(self, room_id: str, request: RemoveMember, caller: Subject, *, ban: bool) -> RoomChange:
        arguments = {"entity": request.entity, "reason": request.reason, "ban": ban}
        await self._speaking.call(caller, "room.kick", room_id=room_id, **arguments)
        return RoomChange(room_id=room_id, entity=request.entity)

    async def _mark(self, room_id: str, action: str, request: RemoveMember, caller: Subject) -> None:
        """Mark also what somebody has said before, in rooms that have that (EXT-07)."""
        enabled = (await self._speaking.call(caller, "room.get", room_id=room_id))["config"][EXTENSIONS]
        if MODERATION in enabled:
            arguments = {"entity": request.entity, "reason": request.reason}
            await self._speaking.call(caller, f"moderation.{action}", room_id=room_id, **arguments)

    async def _require_member(self, room_id: str, entity: str, caller: Subject) -> None:
        if entity not in await self._speaking.call(caller, "room.members", room_id=room_id):
            raise SubletError(LocalCode.NOT_FOUND, f"{entity} is no member", "See: sublet room show ROOM")

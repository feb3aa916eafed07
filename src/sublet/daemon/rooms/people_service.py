"""``RoomPeopleApi``: profiles, and how far members have read."""

from __future__ import annotations

from sublet.daemon.api.room_models import RoomChange
from sublet.daemon.api.room_people_models import (
    FindProfile,
    MarkRead,
    ProfileView,
    ReadingView,
    SearchProfiles,
    UpdateProfile,
)
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations.asking import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.model import Action, Subject


@operations
class RoomPeopleService:
    """Implements ``RoomPeopleApi``.

    Args:
        gate: asks policy.
        speaking: runs operations as the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    async def get_profile(self, request: FindProfile, caller: Subject) -> ProfileView:
        """``RoomPeopleApi.get_profile``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        return ProfileView.model_validate(await self._speaking.call(caller, "profile.get", entity=request.entity))

    async def update_profile(self, request: UpdateProfile, caller: Subject) -> ProfileView:
        """``RoomPeopleApi.update_profile``."""
        size = len(request.model_dump_json().encode())
        await self._gate.ask(caller, Action.ROOM_SEND, "*", size_bytes=size)
        changed = await self._speaking.call(caller, "profile.update", frontmatter=request.fields, body=request.body)
        return ProfileView.model_validate(changed)

    async def search_profiles(self, request: SearchProfiles, caller: Subject) -> list[ProfileView]:
        """``RoomPeopleApi.search_profiles``."""
        await self._gate.ask(caller, Action.ROOM_READ, "*")
        found = await self._speaking.call(caller, "discovery.search", query=request.query)
        return [ProfileView.model_validate(one) for one in found]

    async def mark_read(self, room_id: str, request: MarkRead, caller: Subject) -> RoomChange:
        """``RoomPeopleApi.mark_read``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        await self._speaking.call(caller, "receipts.update", room_id=room_id, ref_id=request.ref_id)
        return RoomChange(room_id=room_id)

    async def get_reading(self, room_id: str, caller: Subject) -> ReadingView:
        """``RoomPeopleApi.get_reading``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        return ReadingView.model_validate(await self._speaking.call(caller, "receipts.summary", room_id=room_id))

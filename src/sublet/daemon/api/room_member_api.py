"""Who is in a room, and its config, as faces call it. Every method asks policy; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.room_member_models import ConfigureRoom, DeclineKnock, Knock, RemoveMember
from sublet.daemon.api.room_models import RoomChange, RoomDetail
from sublet.policy.model import Subject


class RoomMemberApi(Protocol):
    """What a room's power levels allow, as the entity of the caller."""

    async def configure_room(self, room_id: str, request: ConfigureRoom, caller: Subject) -> RoomDetail:
        """Change a room's config, and return it."""

    async def knock_at_room(self, room_id: str, request: Knock, caller: Subject) -> RoomChange:
        """Ask to be let in, at a room that is asked for from peers; an invitation is the yes."""

    async def decline_knock(self, room_id: str, request: DeclineKnock, caller: Subject) -> RoomChange:
        """Answer a knock with no."""

    async def kick_member(self, room_id: str, request: RemoveMember, caller: Subject) -> RoomChange:
        """Remove somebody, who may come back as others come in."""

    async def ban_entity(self, room_id: str, request: RemoveMember, caller: Subject) -> RoomChange:
        """Remove somebody, member or not, who comes in again only by an admin."""

    async def unban_entity(self, room_id: str, request: RemoveMember, caller: Subject) -> RoomChange:
        """Lift a ban; that makes nobody a member."""

"""Serves the operations on invitations: the person answers those of all entities of this daemon, others their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sublet.daemon.api.invitations import (
    ACCEPT_INVITATION,
    DECLINE_INVITATION,
    LIST_INVITATIONS,
    InvitationChange,
    InvitationView,
)
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import OneRoom
from sublet.daemon.operations.table import serves
from sublet.daemon.rooms.of_rooms import OfRooms
from sublet.daemon.rooms.speaking import may_read
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.times import rfc3339_of_ms

if TYPE_CHECKING:
    from sublet.messaging.ports.invitation_store import Invitation


class InvitationService(OfRooms):
    """Serves the operations of ``api.invitations``."""

    @serves(LIST_INVITATIONS)
    async def list_invitations(self, request: Nothing, caller: Subject) -> list[InvitationView]:
        found = await self._speaking.invitations(caller)
        return [_view(one) for one in found if may_read(self._gate, caller, one.room_id)]

    @serves(ACCEPT_INVITATION)
    async def accept_invitation(self, request: OneRoom, caller: Subject) -> InvitationChange:
        found = await self._require(request.room_id, caller)
        here = await (await self._speaking.service()).invited.accept(request.room_id)
        return InvitationChange(room_id=request.room_id, name=found.name, here=here)

    @serves(DECLINE_INVITATION)
    async def decline_invitation(self, request: OneRoom, caller: Subject) -> InvitationChange:
        found = await self._require(request.room_id, caller)
        await (await self._speaking.service()).invited.decline(request.room_id)
        return InvitationChange(room_id=request.room_id, name=found.name)

    async def _require(self, room_id: str, caller: Subject) -> Invitation:
        for one in await self._speaking.invitations(caller):
            if one.room_id == room_id:
                return one
        raise SubletError(LocalCode.NOT_FOUND, "no invitation to that room waits here", "See: sublet room invitations")


def _view(one: Invitation) -> InvitationView:
    return InvitationView(
        room_id=one.room_id,
        name=one.name,
        by=one.by,
        whom=list(one.whom),
        members=list(one.members),
        member_count=one.member_count,
        answer=one.answer.value,
        at=rfc3339_of_ms(one.at_ms),
    )

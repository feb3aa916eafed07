"""Invitations into other rooms, as they are seen and answered from within a chat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sublet.cli.options.invitations import PENDING, resolve_invitation
from sublet.cli.rendering.invitations import members
from sublet.cli.rendering.rooms import room_name
from sublet.daemon.api.invitations import ACCEPT_INVITATION, DECLINE_INVITATION, LIST_INVITATIONS
from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.room_fields import OneRoom

if TYPE_CHECKING:
    from sublet.cli.rendering.entity_names import EntityNames
    from sublet.daemon.control.client import ControlClient as Control


async def waiting(control: Control, names: EntityNames) -> str:
    """Return the invitations that wait, a line each."""
    found = [one for one in await control.call(LIST_INVITATIONS, Nothing()) if one.answer == PENDING]
    lines = [
        f"  {one.room_id}  {room_name(one.name, names)}, from {names.short(one.by)}, with {members(one, names)}"
        for one in found
    ]
    return "\n".join(lines) or "No invitations."


async def answer(control: Control, names: EntityNames, given: str, *, accept: bool) -> str:
    """Come into a room that one is invited to, or say no, and return what became of it.

    Raises:
        SubletError: no such invitation waits, or several.
    """
    chosen = await resolve_invitation(control, given)
    done = await control.call(ACCEPT_INVITATION if accept else DECLINE_INVITATION, OneRoom(room_id=chosen.room_id))
    name = room_name(done.name, names)
    return f"* {name} is among your rooms" if done.here else f"* {'accepted' if accept else 'declined'}: {name}"

"""``sublet chat``: a room in a terminal, live."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from sublet.cli.options.given_text import at_terminal
from sublet.cli.options.rooms import RoomArgument, resolve_room
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import is_room_id

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def chat(ctx: typer.Context, room: RoomArgument) -> None:
    """Talk in a room, live, in this terminal.

    Type and press Enter; /help lists what else can be done. Ctrl-C leaves the view, and the room stays.
    """
    screen = Screen()

    async def body(control: Control) -> None:
        if not at_terminal():
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, "there is no terminal here", "Use `sublet read`, `send` and `watch`."
            )
        room_id = await _entered(control, screen, room)
        from sublet.daemon.api.room_fields import OneRoom
        from sublet.daemon.api.rooms import GET_ROOM

        found = await control.call(GET_ROOM, OneRoom(room_id=room_id))
        from sublet.cli.chat.talk import Talk
        from sublet.cli.chat.terminal import ChatScreen
        from sublet.cli.options.entities import load_names

        view: list[ChatScreen] = []

        def changed() -> None:
            for one in view:
                one.changed()

        talk = Talk(control, found, await load_names(control), changed)
        await talk.begin()
        view.append(ChatScreen(talk))
        await view[0].run()

    run(ctx, screen, body)


async def _entered(control: Control, screen: Screen, given: str) -> str:
    """Return the id of a room; of one that waits for a yes, once it was given here.

    Raises:
        SubletError: as ``resolve_room``.
    """
    from sublet.cli.options.invitations import PENDING, find_invitation

    invitation = await find_invitation(control, given) if is_room_id(given) else None
    if invitation is None:
        try:
            return await resolve_room(control, given)
        except SubletError as error:
            invitation = await find_invitation(control, given) if error.code is LocalCode.NOT_FOUND else None
            if invitation is None or invitation.answer != PENDING:
                raise
    from sublet.cli.options.entities import load_names
    from sublet.cli.rendering.invitations import members
    from sublet.cli.rendering.rooms import room_name
    from sublet.daemon.api.invitations import ACCEPT_INVITATION
    from sublet.daemon.api.room_fields import OneRoom

    names = await load_names(control)
    name, who = room_name(invitation.name, names), members(invitation, names)
    if not typer.confirm(f"{names.short(invitation.by)} invites you into the room {name!r} of {who}. Come in?"):
        raise SubletError(LocalCode.NOT_FOUND, "you have not come in", "It waits: sublet room accept, or decline.")
    await control.call(ACCEPT_INVITATION, OneRoom(room_id=invitation.room_id))
    return invitation.room_id

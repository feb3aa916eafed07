"""``sublet room invitations``, ``accept`` and ``decline``: rooms that others want to bring you into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.commands.rooms.members import rooms as room_commands
from sublet.cli.commands.rooms.rooms import MEMBERS
from sublet.cli.help import Sectioned
from sublet.cli.options.entities import load_names
from sublet.cli.options.invitations import InvitationArgument, resolve_invitation
from sublet.cli.options.rooms import resolve_room
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


@room_commands.command(cls=Sectioned, name="invitations", rich_help_panel=MEMBERS)
def room_invitations(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List rooms that you are, or an agent is, invited to.

    Nothing of such a room is here before you accept, and nobody in it sees that you have looked.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.invitations import LIST_INVITATIONS
        from sublet.daemon.api.operation import Nothing

        found = await control.call(LIST_INVITATIONS, Nothing())
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
            return
        if not found:
            screen.show("No invitations.")
            return
        from sublet.cli.rendering.invitations import invitations

        screen.show(invitations(found, await load_names(control)))

    run(ctx, screen, body)


@room_commands.command(cls=Sectioned, name="accept", rich_help_panel=MEMBERS)
def room_accept(ctx: typer.Context, room: InvitationArgument = None, as_json: JsonFlag = False) -> None:
    """Come into a room that you are invited to."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.invitations import ACCEPT_INVITATION
        from sublet.daemon.api.room_fields import OneRoom

        chosen = await resolve_invitation(control, room)
        done = await control.call(ACCEPT_INVITATION, OneRoom(room_id=chosen.room_id))
        if as_json:
            screen.emit(done.model_dump(mode="json"))
            return
        screen.show("Accepted." if done.here else "Accepted. The room comes as soon as somebody in it is reached.")
        if not done.here and chosen.answer == "declined":
            screen.note("You have said no before, so somebody in it has to invite you again.")

    run(ctx, screen, body)


@room_commands.command(cls=Sectioned, name="decline", rich_help_panel=MEMBERS)
def room_decline(
    ctx: typer.Context,
    room: InvitationArgument = None,
    entity: Annotated[
        str | None,
        typer.Argument(metavar="ENTITY", help="Who knocks at a room of yours, instead.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say no to an invitation, or to who knocks at a room of yours.

    Those who are in the room see that you have declined. It does not come back by itself for 30 days.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        if room is not None and entity is not None:
            from sublet.daemon.api.room_members import DECLINE_KNOCK, DeclineKnock

            target = (await load_names(control)).entity(entity)
            request = DeclineKnock(room_id=await resolve_room(control, room), entity=target)
            answered = (await control.call(DECLINE_KNOCK, request)).model_dump(mode="json")
        else:
            from sublet.daemon.api.invitations import DECLINE_INVITATION
            from sublet.daemon.api.room_fields import OneRoom

            chosen = await resolve_invitation(control, room)
            done = await control.call(DECLINE_INVITATION, OneRoom(room_id=chosen.room_id))
            answered = done.model_dump(mode="json")
        if as_json:
            screen.emit(answered)
        else:
            screen.show("Declined.")

    run(ctx, screen, body)


rooms = room_commands
"""``sublet room`` with these commands too."""

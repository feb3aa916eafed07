"""``sublet room invite``, ``join``, ``knock`` and the like: who is in a room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.commands.rooms.rooms import MEMBERS, room
from sublet.cli.help import Sectioned
from sublet.cli.options.entities import load_names
from sublet.cli.options.rooms import EntityArgument, ReasonOption, RoomArgument, resolve_room
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sublet.daemon.api.rooms import RoomChange
    from sublet.daemon.control.client import ControlClient as Control

MAX_REASON_CHARS = 500


@room.command(cls=Sectioned, name="invite", rich_help_panel=MEMBERS)
def room_invite(ctx: typer.Context, room: RoomArgument, entity: EntityArgument, as_json: JsonFlag = False) -> None:
    """Invite somebody, or say yes to who knocks.

    `sublet room show` tells who has not answered yet, and `sublet room kick` takes an invitation back.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.rooms import INVITE_TO_ROOM, InviteToRoom

        room_id, names = await resolve_room(control, room), await load_names(control)
        invited = names.entity(entity)
        done = await control.call(INVITE_TO_ROOM, InviteToRoom(room_id=room_id, entity=invited))
        if as_json:
            screen.emit(done.model_dump(mode="json"))
            return
        screen.show("Invited.")
        if not names.is_near(invited):
            screen.note("Your daemons are not paired, so the room is not there until they are: sublet pair")
        elif done.apart:
            screen.note(f"Nobody is told yet: {clean_line(done.apart)}")
        elif not names.is_ours(invited):
            screen.note("They are in once they accept: sublet room show")

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="join", rich_help_panel=MEMBERS)
def room_join(ctx: typer.Context, room: RoomArgument, as_json: JsonFlag = False) -> None:
    """Enter an open room, or one that you are invited to."""

    async def join(control: Control, room_id: str) -> RoomChange:
        from sublet.daemon.api.room_fields import OneRoom
        from sublet.daemon.api.rooms import JOIN_ROOM

        return await control.call(JOIN_ROOM, OneRoom(room_id=room_id))

    _do(ctx, room, join, "Joined.", as_json)


@room.command(cls=Sectioned, name="knock", rich_help_panel=MEMBERS)
def room_knock(
    ctx: typer.Context,
    room: RoomArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say at the door.", show_default=False)] = "",
    as_json: JsonFlag = False,
) -> None:
    """Ask to be let into a room.

    Whoever may let you in sees it by `sublet room show`, and answers by `room invite` or `room decline`.
    """

    async def knock(control: Control, room_id: str) -> RoomChange:
        from sublet.daemon.api.room_members import KNOCK_AT_ROOM, Knock

        return await control.call(KNOCK_AT_ROOM, Knock(room_id=room_id, text=_short(text)))

    _do(ctx, room, knock, "Asked. You are in once somebody there invites you.", as_json)


@room.command(cls=Sectioned, name="leave", rich_help_panel=MEMBERS)
def room_leave(ctx: typer.Context, room: RoomArgument, as_json: JsonFlag = False) -> None:
    """Leave a room; what you have said stays."""

    async def leave(control: Control, room_id: str) -> RoomChange:
        from sublet.daemon.api.room_fields import OneRoom
        from sublet.daemon.api.rooms import LEAVE_ROOM

        return await control.call(LEAVE_ROOM, OneRoom(room_id=room_id))

    _do(ctx, room, leave, "Left.", as_json)


@room.command(cls=Sectioned, name="kick", rich_help_panel=MEMBERS)
def room_kick(
    ctx: typer.Context, room: RoomArgument, entity: EntityArgument, reason: ReasonOption = "", as_json: JsonFlag = False
) -> None:
    """Remove a less powerful member, or an invitation."""

    async def kick(control: Control, room_id: str) -> RoomChange:
        from sublet.daemon.api.room_members import KICK_MEMBER, RemoveMember

        target = (await load_names(control)).entity(entity)
        return await control.call(KICK_MEMBER, RemoveMember(room_id=room_id, entity=target, reason=_short(reason)))

    _do(ctx, room, kick, "Removed.", as_json)


@room.command(cls=Sectioned, name="ban", rich_help_panel=MEMBERS)
def room_ban(
    ctx: typer.Context, room: RoomArgument, entity: EntityArgument, reason: ReasonOption = "", as_json: JsonFlag = False
) -> None:
    """Remove somebody and keep them out.

    Only an admin lets them in again.
    """

    async def ban(control: Control, room_id: str) -> RoomChange:
        from sublet.daemon.api.room_members import BAN_ENTITY, RemoveMember

        target = (await load_names(control)).entity(entity)
        return await control.call(BAN_ENTITY, RemoveMember(room_id=room_id, entity=target, reason=_short(reason)))

    _do(ctx, room, ban, "Banned.", as_json)


@room.command(cls=Sectioned, name="unban", rich_help_panel=MEMBERS)
def room_unban(
    ctx: typer.Context, room: RoomArgument, entity: EntityArgument, reason: ReasonOption = "", as_json: JsonFlag = False
) -> None:
    """Lift a ban; that makes nobody a member."""

    async def unban(control: Control, room_id: str) -> RoomChange:
        from sublet.daemon.api.room_members import UNBAN_ENTITY, RemoveMember

        target = (await load_names(control)).entity(entity)
        return await control.call(UNBAN_ENTITY, RemoveMember(room_id=room_id, entity=target, reason=_short(reason)))

    _do(ctx, room, unban, "The ban is lifted.", as_json)


def _do(
    ctx: typer.Context,
    room: str,
    change: Callable[[Control, str], Awaitable[RoomChange]],
    words: str,
    as_json: bool,
) -> None:
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        done = await change(control, await resolve_room(control, room))
        if as_json:
            screen.emit(done.model_dump(mode="json"))
        else:
            screen.show(words)

    run(ctx, screen, body)


def _short(text: str) -> str:
    if len(text) > MAX_REASON_CHARS:
        raise typer.BadParameter(f"{MAX_REASON_CHARS} characters at most")
    return text


rooms = room
"""``sublet room`` with these commands too."""

"""``sublet whoami``, ``room``, ``send``, ``read`` and ``watch``: rooms between daemons."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from sublet.cli.connection import run
from sublet.cli.help import Sectioned, listing
from sublet.cli.options import JsonFlag
from sublet.cli.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import is_room_id
from sublet.protocol.text import clean, clean_line

if TYPE_CHECKING:
    from sublet.daemon.api.room_models import RoomChange
    from sublet.daemon.control.client import ControlClient as Control

MAX_NAME_CHARS = 100

room = listing("room", "Rooms in which people and agents of paired daemons talk.")

RoomArgument = Annotated[str, typer.Argument(metavar="ROOM", help="Its id or its name.", show_default=False)]


async def resolve_room(control: Control, given: str) -> str:
    """Return the id of the room that ``given`` names.

    Raises:
        SubletError: ``NOT_FOUND`` for none, ``INVALID_ARGUMENT`` for a name of several.
    """
    if is_room_id(given):
        return given
    fitting = [one.room_id for one in await control.rooms.list_rooms() if one.name == given]
    shown = clean_line(given, MAX_NAME_CHARS)
    if not fitting:
        raise SubletError(LocalCode.NOT_FOUND, f"there is no room {shown!r}", "See: sublet room list")
    if len(fitting) > 1:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"{len(fitting)} rooms are called {shown!r}", "Give its id.")
    return fitting[0]


def whoami(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Print as whom you speak in rooms; who invites you needs it."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        me = await control.rooms.whoami()
        if as_json:
            screen.emit(me.model_dump(mode="json"))
        else:
            screen.out.print(me.entity_id, soft_wrap=True)

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="create")
def room_create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)],
    policy: Annotated[
        str, typer.Option("--policy", metavar="POLICY", help="How others come in: open, knock or invite.")
    ] = "invite",
    as_json: JsonFlag = False,
) -> None:
    """Open a room that you own."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_models import CreateRoom

        try:
            request = CreateRoom.model_validate({"name": name, "policy": policy})
        except ValidationError:
            raise typer.BadParameter(
                "a room has a name of 1 to 256 characters, and a policy of open, knock or invite"
            ) from None
        made = await control.rooms.create_room(request)
        if as_json:
            screen.emit(made.model_dump(mode="json"))
        else:
            screen.out.print(made.room_id)

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="list")
def room_list(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List the rooms that you are a member of."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        found = await control.rooms.list_rooms()
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
            return
        if not found:
            screen.show("No rooms. Open one: sublet room create NAME")
            return
        from rich.text import Text

        from sublet.cli.columns import Columns

        rows = [
            [Text(one.room_id), Text(one.role), Text(str(one.members)), Text(clean_line(one.name, MAX_NAME_CHARS))]
            for one in found
        ]
        screen.show(Columns(["id", "role", "members", "name"], rows))

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="show")
def room_show(ctx: typer.Context, room: RoomArgument, as_json: JsonFlag = False) -> None:
    """Show a room and its members."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        found = await control.rooms.get_room(await resolve_room(control, room))
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        screen.show(f"{clean_line(found.name, MAX_NAME_CHARS)}  {found.room_id}  ({found.policy})")
        for entity, role in sorted(found.roles.items()):
            screen.show(f"  {entity}  {role}")

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="invite")
def room_invite(
    ctx: typer.Context,
    room: RoomArgument,
    entity: Annotated[str, typer.Argument(metavar="ENTITY", help="As `sublet whoami` says there.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Make somebody a member of a room."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        room_id = await resolve_room(control, room)
        _tell(screen, await control.rooms.invite_to_room(room_id, entity), "Invited.")

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="join")
def room_join(
    ctx: typer.Context,
    room: RoomArgument,
    as_json: JsonFlag = False,
) -> None:
    """Become a member of an open room."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        _tell(screen, await control.rooms.join_room(await resolve_room(control, room)), "Joined.")

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="leave")
def room_leave(ctx: typer.Context, room: RoomArgument, as_json: JsonFlag = False) -> None:
    """Leave a room; what you have said stays."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        _tell(screen, await control.rooms.leave_room(await resolve_room(control, room)), "Left.")

    run(ctx, screen, body)


def send(
    ctx: typer.Context,
    room: RoomArgument,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to say.", show_default=False)],
    reply_to: Annotated[
        str | None,
        typer.Option("--reply-to", metavar="REF", help="The message that it answers.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say something in a room.

    It is kept here when this returns, and goes to the other members as soon as they can be reached.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_models import SendMessage

        try:
            request = SendMessage(body=text, reply_to=reply_to)
        except ValidationError:
            raise typer.BadParameter("a message has 1 to 65,536 characters, and REF is the id of a message") from None
        sent = await control.rooms.send_message(await resolve_room(control, room), request)
        if as_json:
            screen.emit(sent.model_dump(mode="json"))
        else:
            screen.out.print(sent.ref_id)

    run(ctx, screen, body)


def read(
    ctx: typer.Context,
    room: RoomArgument,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=200, help="How many at most.")] = 50,
    before: Annotated[
        str | None, typer.Option("--before", metavar="REF", help="Those before this message.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the last messages of a room."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_models import ReadMessages

        try:
            request = ReadMessages(limit=limit, before=before)
        except ValidationError:
            raise typer.BadParameter("REF is the id of a message") from None
        found = await control.rooms.read_messages(await resolve_room(control, room), request)
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
            return
        from rich.text import Text

        from sublet.cli.columns import Quoted
        from sublet.cli.render import local_time

        for one in found:
            said = one.body if one.body is not None else f"({one.status})"
            screen.show(
                Text(f"{local_time(one.created_at)}  {one.author}  {one.ref_id}", style="dim"),
                Quoted(clean(said), f"{screen.symbols.bar} "),
            )

    run(ctx, screen, body)


def watch(
    ctx: typer.Context,
    room: Annotated[
        str | None, typer.Argument(metavar="ROOM", help="Its id or its name; all of yours.", show_default=False)
    ] = None,
    since: Annotated[
        int | None,
        typer.Option("--since", metavar="CURSOR", min=0, help="All that came after it, 0 for all.", show_default=False),
    ] = None,
    peek: Annotated[bool, typer.Option("--peek", help="Show it again the next time.", show_default=False)] = False,
    wait: Annotated[
        float, typer.Option("--wait", metavar="S", min=0, help="Seconds to wait where there is nothing.")
    ] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Print what others have done in your rooms since the last time.

    Nothing is lost while nobody watches: it comes first the next time. With --since it is everything after a cursor,
    your own doings too, and the next time is as if it had not been. It ends with the cursor to go on with.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.models import MAX_WAIT_SECONDS
        from sublet.daemon.api.room_models import WatchRooms

        room_id = await resolve_room(control, room) if room is not None else None
        until, cursor = time.monotonic() + wait, since
        while True:
            left = max(until - time.monotonic(), 0)
            request = WatchRooms(since=cursor, wait=min(left, MAX_WAIT_SECONDS), room_id=room_id)
            found = await control.rooms.watch_rooms(request)
            if found.events or left <= MAX_WAIT_SECONDS:
                break
            cursor = found.cursor if since is not None else None
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            for event in found.events:
                by = event.get("author") or event.get("entity") or ""
                screen.show(clean_line(f"{event['cursor']}  {event['kind']}  {event['room_id']}  {by}", 400))
            if found.missed:
                screen.note("More had happened than is kept: read the rooms with sublet read.")
            screen.note(f"Go on with --since {found.cursor}")
        if since is None and not peek:  # printed, so that it is received
            await control.rooms.watch_rooms(WatchRooms(since=found.cursor, acknowledge=found.cursor, room_id=room_id))

    run(ctx, screen, body)


def _tell(screen: Screen, done: RoomChange, words: str) -> None:
    if screen.as_json:
        screen.emit(done.model_dump(mode="json"))
    else:
        screen.show(words)

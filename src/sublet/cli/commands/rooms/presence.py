"""``sublet presence`` and ``drafts``: who is there, and what is not sent yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from sublet.cli.options.completion import complete_room
from sublet.cli.options.rooms import RoomArgument, resolve_ref, resolve_room, text_argument
from sublet.cli.options.values import JsonFlag, wrong_value
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.api.room_presence import DraftView
    from sublet.daemon.control.client import ControlClient as Control


def presence(
    ctx: typer.Context,
    room: RoomArgument,
    status: Annotated[
        str | None,
        typer.Option("--status", metavar="TEXT", help="Say what you are about; '' takes it away.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print who is there in a room just now.

    That and your status are told in passing: whoever comes later does not see what was before.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_fields import OneRoom
        from sublet.daemon.api.room_presence import LIST_PRESENCE, SET_PRESENCE, SetPresence

        room_id = await resolve_room(control, room)
        if status is not None:
            try:
                request = SetPresence(room_id=room_id, status=status)
            except ValidationError as error:
                raise wrong_value(error, {"status": "--status"}) from None
            await control.call(SET_PRESENCE, request)
        found = await control.call(LIST_PRESENCE, OneRoom(room_id=room_id))
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
            return
        if not found:
            screen.show("Nobody is there.")
            return
        from rich.text import Text

        from sublet.cli.options.entities import load_names
        from sublet.cli.rendering.columns import Columns
        from sublet.cli.rendering.words import whole_line

        names = await load_names(control)
        rows = [
            [Text(names.short(one.entity)), Text("typing" if one.typing else ""), Text(whole_line(one.status or ""))]
            for one in found
        ]
        screen.show(Columns(["here", "doing", "status"], rows))

    run(ctx, screen, body)


def drafts(
    ctx: typer.Context,
    room: Annotated[
        str | None,
        typer.Argument(
            metavar="ROOM", help="Its id or its name; all of yours.", show_default=False, autocompletion=complete_room
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="What to keep; - reads it from stdin.", show_default=False),
    ] = None,
    reply_to: Annotated[
        str | None,
        typer.Option("--reply-to", metavar="REF", help="The message that it is to answer.", show_default=False),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Forget it.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print what you have begun to write, or keep it.

    It goes to your own devices alone, and is gone once you send a message there. Without ROOM, all are listed.
    """
    screen = Screen(as_json=as_json)
    if (clear and (room is None or text is not None)) or (reply_to is not None and text is None):
        raise typer.BadParameter("--clear needs a room and no text, --reply-to a text")
    kept = "" if clear else text_argument(text) if text is not None else None

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.room_fields import OneRoom
        from sublet.daemon.api.room_presence import LOAD_DRAFT, SAVE_DRAFT, SaveDraft
        from sublet.daemon.api.rooms import LIST_ROOMS

        if room is None:
            rooms = await control.call(LIST_ROOMS, Nothing())
            found = [await control.call(LOAD_DRAFT, OneRoom(room_id=one.room_id)) for one in rooms]
            _show(screen, [one for one in found if one.body], {one.room_id: one.name for one in rooms})
            return
        room_id = await resolve_room(control, room)
        if kept is None:
            one = await control.call(LOAD_DRAFT, OneRoom(room_id=room_id))
        else:
            answered = None if reply_to is None else await resolve_ref(control, room_id, reply_to)
            one = await control.call(SAVE_DRAFT, SaveDraft(room_id=room_id, body=kept, reply_to=answered))
        if as_json:
            screen.emit(one.model_dump(mode="json"))
        elif kept is not None:
            screen.show("Kept." if kept else "Forgotten.")
        else:
            _show(screen, [one] if one.body else [], {})

    run(ctx, screen, body)


def _show(screen: Screen, found: list[DraftView], names: dict[str, str]) -> None:
    if screen.as_json:
        screen.emit([one.model_dump(mode="json") for one in found])
        return
    if not found:
        screen.show("Nothing.")
        return
    from rich.text import Text

    from sublet.cli.rendering.columns import Quoted
    from sublet.cli.rendering.words import whole_line
    from sublet.protocol.text import clean

    for one in found:
        if one.room_id in names:
            screen.show(Text(whole_line(names[one.room_id]), style="bold"))
        screen.show(Quoted(clean(one.body), f"{screen.symbols.bar} "))

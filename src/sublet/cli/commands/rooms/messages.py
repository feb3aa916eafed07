"""``sublet whoami``, ``send``, ``read``, ``thread`` and ``channels``: what is said in rooms."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from sublet.cli.options.rooms import FormatOption, RoomArgument, resolve_ref, resolve_room, text_argument
from sublet.cli.options.values import JsonFlag, wrong_value
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.api.room_messages import MessageView
    from sublet.daemon.control.client import ControlClient as Control

SPELLED = {"thread": "--thread", "format": "--format"}
LimitOption = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=200, help="How many at most.")]
BeforeOption = Annotated[
    str | None, typer.Option("--before", metavar="REF", help="Those before this message.", show_default=False)
]


def whoami(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """Print as whom you speak in rooms; who invites you needs it."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.rooms import WHOAMI

        me = await control.call(WHOAMI, Nothing())
        if as_json:
            screen.emit(me.model_dump(mode="json"))
        else:
            screen.out.print(me.entity_id, soft_wrap=True)

    run(ctx, screen, body)


def send(
    ctx: typer.Context,
    room: RoomArgument,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What to say; - reads it from stdin.", show_default=False)
    ],
    reply_to: Annotated[
        str | None,
        typer.Option("--reply-to", metavar="REF", help="The message that it answers.", show_default=False),
    ] = None,
    reply_room: Annotated[
        str | None,
        typer.Option(
            "--reply-room", metavar="ROOM", help="The room of that message, where it is another.", show_default=False
        ),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option("--thread", metavar="REF", help="The first message of its thread.", show_default=False),
    ] = None,
    form: FormatOption = None,
    channel: Annotated[
        list[str] | None,
        typer.Option("--channel", metavar="NAME", help="A channel that it is in; can be repeated.", show_default=False),
    ] = None,
    attach: Annotated[
        Path | None, typer.Option("--attach", metavar="FILE", help="A file that comes with it.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say something in a room, or to somebody.

    It is kept here when this returns, and goes to the others as soon as they can be reached. To a peer, AGENT@PEER or
    @ENTITY a room of two is opened the first time.
    """
    screen = Screen(as_json=as_json)
    said = text_argument(text)
    if reply_room is not None and reply_to is None:
        raise typer.BadParameter("--reply-room goes with --reply-to")

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_messages import SEND_MESSAGE, SendMessage

        room_id = await resolve_room(control, room, open_one=True)
        given: dict[str, Any] = {"room_id": room_id, "body": said, "channels": channel or []}
        if form is not None:
            given["format"] = form
        there = room_id if reply_room is None else await resolve_room(control, reply_room)
        if there != room_id:
            given["reply_room"] = there
        for name, ref, where in (("reply_to", reply_to, there), ("thread", thread, room_id)):
            given[name] = None if ref is None else await resolve_ref(control, where, ref)
        if attach is not None:
            from sublet.cli.options.room_files import upload

            kept = await upload(control, room_id, attach)
            given |= {"media": kept.blob_hash, "filename": kept.filename}
        try:
            request = SendMessage.model_validate(given)
        except ValidationError as error:
            raise wrong_value(error, {"channels": "--channel", "body": "TEXT", **SPELLED}) from None
        sent = await control.call(SEND_MESSAGE, request)
        if as_json:
            screen.emit(sent.model_dump(mode="json"))
        else:
            screen.out.print(sent.ref_id)

    run(ctx, screen, body)


def read(
    ctx: typer.Context,
    room: RoomArgument,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    thread: Annotated[
        str | None,
        typer.Option("--thread", metavar="REF", help="Those of the thread of this message.", show_default=False),
    ] = None,
    channel: Annotated[
        str | None, typer.Option("--channel", metavar="NAME", help="Those of a channel.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the last messages of a room."""
    screen = Screen(as_json=as_json)
    if thread is not None and channel is not None:
        raise typer.BadParameter("give --thread or --channel")

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_messages import READ_MESSAGES, ReadMessages

        room_id = await resolve_room(control, room)
        given: dict[str, Any] = {"room_id": room_id, "limit": limit, "channel": channel}
        for name, ref in (("before", before), ("thread", thread)):
            given[name] = None if ref is None else await resolve_ref(control, room_id, ref)
        try:
            request = ReadMessages.model_validate(given)
        except ValidationError as error:
            raise wrong_value(error, {"channel": "--channel"}) from None
        found = await control.call(READ_MESSAGES, request)
        await _show(control, screen, found)

    run(ctx, screen, body)


def thread(
    ctx: typer.Context,
    room: RoomArgument,
    ref: Annotated[
        str | None, typer.Argument(metavar="REF", help="The first message of a thread.", show_default=False)
    ] = None,
    limit: LimitOption = 50,
    before: BeforeOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Print a thread, or the first messages of all threads."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_fields import OneMessage
        from sublet.daemon.api.room_marks import GET_MESSAGE
        from sublet.daemon.api.room_messages import LIST_THREADS, READ_MESSAGES, ListThreads, ReadMessages

        room_id = await resolve_room(control, room)
        older = None if before is None else await resolve_ref(control, room_id, before)
        if ref is None:
            found = await control.call(LIST_THREADS, ListThreads(room_id=room_id, limit=limit, before=older))
        else:
            root = await resolve_ref(control, room_id, ref)
            request = ReadMessages(room_id=room_id, limit=limit, before=older, thread=root)
            found = await control.call(READ_MESSAGES, request)
            if older is None:
                first = await control.call(GET_MESSAGE, OneMessage(room_id=room_id, ref_id=root))
                found = [first, *found]
        await _show(control, screen, found)

    run(ctx, screen, body)


def channels(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List the channels of your rooms, the last used first."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.room_messages import LIST_CHANNELS

        found = await control.call(LIST_CHANNELS, Nothing())
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
        elif not found:
            screen.show("No channels. Send to one: sublet send ROOM TEXT --channel NAME")
        else:
            from sublet.cli.rendering.rooms import channels as table

            screen.show(table(found))

    run(ctx, screen, body)


async def _show(control: Control, screen: Screen, found: Sequence[MessageView]) -> None:
    if screen.as_json:
        screen.emit([one.model_dump(mode="json") for one in found])
        return
    from sublet.cli.options.entities import load_names
    from sublet.cli.rendering.rooms import message

    names = await load_names(control)
    known = {one.ref_id: one for one in found}
    for one in found:
        screen.show(*message(one, names, screen.symbols, known))

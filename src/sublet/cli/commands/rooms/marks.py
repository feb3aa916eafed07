"""``sublet react``, ``edit``, ``delete``, ``redact``, ``pin`` and ``unpin``: what is done to messages."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError

from sublet.cli.options.rooms import (
    FormatOption,
    ReasonOption,
    RefArgument,
    RoomArgument,
    resolve_ref,
    resolve_room,
    text_argument,
)
from sublet.cli.options.values import JsonFlag, wrong_value
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.api.room_marks import MessageChange
    from sublet.daemon.control.client import ControlClient as Control

MAX_REASON_CHARS = 500
OwnRefArgument = Annotated[
    str,
    typer.Argument(
        metavar="REF", help="Your message: its id, the end of it, or `last` for your last one.", show_default=False
    ),
]


def react(
    ctx: typer.Context,
    room: RoomArgument,
    ref: RefArgument,
    emoji: Annotated[str, typer.Argument(metavar="EMOJI", help="With what.", show_default=False)],
    remove: Annotated[bool, typer.Option("--remove", help="Take the reaction back.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """React to a message with an emoji, or take that back."""

    async def change(control: Control, room_id: str, ref_id: str) -> MessageChange:
        from sublet.daemon.api.room_marks import ADD_REACTION, REMOVE_REACTION, React

        try:
            request = React(room_id=room_id, ref_id=ref_id, emoji=emoji)
        except ValidationError as error:
            raise wrong_value(error, {"emoji": "EMOJI"}) from None
        return await control.call(REMOVE_REACTION if remove else ADD_REACTION, request)

    words = ("Taken back.", "There was no such reaction of yours.") if remove else ("Added.", "It was there already.")
    _do(ctx, room, ref, change, words, as_json)


def edit(
    ctx: typer.Context,
    room: RoomArgument,
    ref: OwnRefArgument,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="What it says from now on; - reads it from stdin.", show_default=False),
    ] = None,
    form: FormatOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Let a message of yours say something else.

    Without TEXT, what it has said so far is printed.
    """
    if text is None:
        if form is not None:
            raise typer.BadParameter("--format goes with TEXT")
        _versions(ctx, room, ref, as_json)
        return
    said = text_argument(text)

    async def change(control: Control, room_id: str, ref_id: str) -> MessageChange:
        from sublet.daemon.api.room_marks import EDIT_MESSAGE, EditMessage

        given = {"room_id": room_id, "ref_id": ref_id, "body": said, "format": form}
        try:
            request = EditMessage.model_validate(given)
        except ValidationError as error:
            raise wrong_value(error, {"format": "--format", "body": "TEXT"}) from None
        return await control.call(EDIT_MESSAGE, request)

    _do(ctx, room, ref, change, ("Edited.", ""), as_json, own=True)


def delete(ctx: typer.Context, room: RoomArgument, ref: OwnRefArgument, as_json: JsonFlag = False) -> None:
    """Delete a message of yours."""

    async def change(control: Control, room_id: str, ref_id: str) -> MessageChange:
        from sublet.daemon.api.room_marks import DELETE_MESSAGE, DeleteMessage

        return await control.call(DELETE_MESSAGE, DeleteMessage(room_id=room_id, ref_id=ref_id))

    _do(ctx, room, ref, change, ("Deleted.", "It was deleted already."), as_json, own=True)


def redact(
    ctx: typer.Context, room: RoomArgument, ref: RefArgument, reason: ReasonOption = "", as_json: JsonFlag = False
) -> None:
    """Take a message down, as a moderator.

    Only moderators can read it from then on.
    """
    _moderate(ctx, room, ref, "redact", ("Taken down.", "It was taken down already."), as_json, reason)


def pin(ctx: typer.Context, room: RoomArgument, ref: RefArgument, as_json: JsonFlag = False) -> None:
    """Pin a message, as a moderator."""
    _moderate(ctx, room, ref, "pin", ("Pinned.", "It was pinned already."), as_json)


def unpin(ctx: typer.Context, room: RoomArgument, ref: RefArgument, as_json: JsonFlag = False) -> None:
    """Pin a message no longer."""
    _moderate(ctx, room, ref, "unpin", ("Not pinned any more.", "It was not pinned."), as_json)


def _moderate(
    ctx: typer.Context, room: str, ref: str, action: str, words: tuple[str, str], as_json: bool, reason: str = ""
) -> None:
    if len(reason) > MAX_REASON_CHARS:
        raise typer.BadParameter(f"a reason has {MAX_REASON_CHARS} characters at most")

    async def change(control: Control, room_id: str, ref_id: str) -> MessageChange:
        from sublet.daemon.api.room_marks import MODERATE_MESSAGE, Moderate

        message = {"room_id": room_id, "ref_id": ref_id}
        return await control.call(
            MODERATE_MESSAGE, Moderate.model_validate({**message, "action": action, "reason": reason})
        )

    _do(ctx, room, ref, change, words, as_json)


def _versions(ctx: typer.Context, room: str, ref: str, as_json: bool) -> None:
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_fields import OneMessage
        from sublet.daemon.api.room_marks import LIST_VERSIONS

        room_id = await resolve_room(control, room)
        request = OneMessage(room_id=room_id, ref_id=await resolve_ref(control, room_id, ref))
        found = await control.call(LIST_VERSIONS, request)
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
            return
        from rich.text import Text

        from sublet.cli.rendering.columns import Quoted
        from sublet.cli.rendering.delegations import local_time
        from sublet.protocol.text import clean

        for one in found:
            at = local_time(one.at) if isinstance(one.at, str) else ""
            screen.show(Text(at, style="dim"), Quoted(clean(one.body), f"{screen.symbols.bar} "))

    run(ctx, screen, body)


def _do(
    ctx: typer.Context,
    room: str,
    ref: str,
    change: Callable[[Control, str, str], Awaitable[MessageChange]],
    words: tuple[str, str],
    as_json: bool,
    own: bool = False,
) -> None:
    """Change a message; ``words`` say that it was, or that nothing had to be; ``own`` makes ``last`` one's own."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        room_id = await resolve_room(control, room)
        mine = None
        if own:
            from sublet.daemon.api.operation import Nothing
            from sublet.daemon.api.rooms import WHOAMI

            mine = (await control.call(WHOAMI, Nothing())).entity_id
        done = await change(control, room_id, await resolve_ref(control, room_id, ref, of=mine))
        if as_json:
            screen.emit(done.model_dump(mode="json"))
        else:
            screen.show(words[0] if done.changed else words[1])

    run(ctx, screen, body)

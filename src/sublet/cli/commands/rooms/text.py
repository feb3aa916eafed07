"""``sublet text``: messages into which several write (EXT-02)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from sublet.cli.help import Sectioned, group
from sublet.cli.options.given_text import STDIN, at_terminal, from_stdin
from sublet.cli.options.rooms import MAX_TEXT_CHARS, RefArgument, RoomArgument, resolve_ref, resolve_room
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.cli.rendering.entity_names import EntityNames
    from sublet.daemon.api.room_texts import TextAccess, TextView
    from sublet.daemon.control.client import ControlClient as Control

TRIES: Final = 8
"""How often a change is tried where others write at the same moment."""
TOO_LONG: Final = f"a text has at most {MAX_TEXT_CHARS:,} characters"

text = group(
    "text",
    "Texts that several write.\n\n"
    "A message of yours becomes one by `text share`: then others edit it as you do, at the same time, and what each of "
    "them has written is there for all.",
)


@text.command(cls=Sectioned, name="share")
def text_share(
    ctx: typer.Context,
    room: RoomArgument,
    ref: RefArgument,
    having: Annotated[
        list[str] | None,
        typer.Option("--with", metavar="ENTITY", help="Let them write too; can be repeated.", show_default=False),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="ENTITY", help="Let them write no longer; can be repeated.", show_default=False
        ),
    ] = None,
    all_members: Annotated[
        bool, typer.Option("--all", help="Let all members write; there is no way back.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Let others write into a message of yours, or print who may.

    What somebody has written stays when they may not write any more.
    """
    if all_members and (having or without):
        raise typer.BadParameter("--all lets all members write, so --with and --without say nothing beside it")
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.cli.options.entities import load_names
        from sublet.daemon.api.room_fields import OneMessage
        from sublet.daemon.api.room_texts import GET_ACCESS, SHARE_TEXT, ShareText

        room_id, names = await resolve_room(control, room), await load_names(control)
        ref_id = await resolve_ref(control, room_id, ref, of=names.me)
        found = await control.call(GET_ACCESS, OneMessage(room_id=room_id, ref_id=ref_id))
        if having or without or all_members:
            gone = {names.entity(one) for one in without or []}
            editors = dict.fromkeys([*found.editors, *(names.entity(one) for one in having or [])])
            kept = [one for one in editors if one not in gone]
            mode = "room_members" if all_members else "explicit" if found.mode == "owner_only" else None
            message = {"room_id": room_id, "ref_id": ref_id}
            request = ShareText.model_validate({**message, "mode": mode, "editors": kept})
            found = await control.call(SHARE_TEXT, request)
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            screen.show(_who(found, names))

    run(ctx, screen, body)


@text.command(cls=Sectioned, name="show")
def text_show(ctx: typer.Context, room: RoomArgument, ref: RefArgument, as_json: JsonFlag = False) -> None:
    """Print a text that several write, as it is now."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        room_id = await resolve_room(control, room)
        found = await _text(control, room_id, await resolve_ref(control, room_id, ref))
        await _print(control, screen, found)

    run(ctx, screen, body)


@text.command(cls=Sectioned, name="edit")
def text_edit(
    ctx: typer.Context,
    room: RoomArgument,
    ref: RefArgument,
    given: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="What it says from now on; - reads it from stdin.", show_default=False),
    ] = None,
    append: Annotated[
        str | None, typer.Option("--append", metavar="TEXT", help="Only add this at its end.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Edit a text that several write.

    Without TEXT it opens in $VISUAL or $EDITOR. What others write meanwhile stays; where both have changed the same
    words, yours are not taken, and kept in a file.
    """
    screen = Screen(as_json=as_json)
    if given is not None and append is not None:
        raise typer.BadParameter("give TEXT, or --append")
    if given == STDIN:
        given = from_stdin(MAX_TEXT_CHARS, "the text").removesuffix("\n")
    if max(len(given or ""), len(append or "")) > MAX_TEXT_CHARS:
        raise typer.BadParameter(TOO_LONG)

    async def body(control: Control) -> None:
        room_id = await resolve_room(control, room)
        here = await _text(control, room_id, await resolve_ref(control, room_id, ref))
        if not here.may_edit:
            raise SubletError(
                LocalCode.POLICY_DENIED, "you may not write into this text", "Its owner may let you: sublet text share"
            )
        if append is not None:
            found = await _append(control, here, append)
        elif given is not None:
            found = await _change(control, here, given)
        else:
            found = await _by_editor(control, here)
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            screen.show("Edited." if found.text != here.text else "It is as it was.")

    run(ctx, screen, body)


async def _text(control: Control, room_id: str, ref_id: str) -> TextView:
    from sublet.daemon.api.room_fields import OneMessage
    from sublet.daemon.api.room_texts import GET_TEXT

    return await control.call(GET_TEXT, OneMessage(room_id=room_id, ref_id=ref_id))


async def _append(control: Control, here: TextView, added: str) -> TextView:
    """Add words at the end, wherever that is by then."""
    from sublet.daemon.api.room_texts import EDIT_TEXT, EditText, TextEdit

    for left in reversed(range(TRIES)):
        edits = [TextEdit(index=len(here.text), insert=added)]
        request = EditText(room_id=here.room_id, ref_id=here.ref_id, base=here.text, edits=edits)
        try:
            return await control.call(EDIT_TEXT, request)
        except SubletError as error:
            if error.code is not LocalCode.CONFLICT or not left:
                raise
        here = await _text(control, here.room_id, here.ref_id)
    raise AssertionError("the last try raises")


async def _change(control: Control, base: TextView, wanted: str) -> TextView:
    """Make of ``base`` what is wanted, beside what others have made of it since.

    Raises:
        SubletError: ``CONFLICT``: both have changed the same words.
    """
    from sublet.cli.commands.rooms.text_edits import carried_over, edits_between
    from sublet.daemon.api.room_texts import EDIT_TEXT, MAX_EDITS, EditText, TextEdit

    mine, here = edits_between(base.text, wanted, MAX_EDITS), base
    for left in reversed(range(TRIES)):
        carried = carried_over(mine, edits_between(base.text, here.text, MAX_EDITS))
        if carried is None:
            raise SubletError(
                LocalCode.CONFLICT, "somebody else has changed the same words meanwhile", "Read it: sublet text show."
            )
        if not carried:
            return here
        edits = [TextEdit(index=one.index, delete=one.delete, insert=one.insert) for one in carried]
        request = EditText(room_id=base.room_id, ref_id=base.ref_id, base=here.text, edits=edits)
        try:
            return await control.call(EDIT_TEXT, request)
        except SubletError as error:
            if error.code is not LocalCode.CONFLICT or not left:
                raise
        here = await _text(control, base.room_id, base.ref_id)
    raise AssertionError("the last try raises")


async def _by_editor(control: Control, base: TextView) -> TextView:
    import anyio.to_thread

    from sublet.cli.options.editor import edit_in_editor

    if not at_terminal():
        raise SubletError(LocalCode.INVALID_ARGUMENT, "there is no terminal here", "Give TEXT, or - for stdin.")
    edited = await anyio.to_thread.run_sync(edit_in_editor, base.text)
    try:
        if len(edited.text) > MAX_TEXT_CHARS:
            raise SubletError(LocalCode.INVALID_ARGUMENT, TOO_LONG, "Make it shorter.")
        found = await _change(control, base, edited.text)
    except SubletError as error:
        raise SubletError(error.code, error.message, f"{error.hint} What you wrote is in {edited.file}") from None
    await anyio.to_thread.run_sync(edited.file.unlink)
    return found


async def _print(control: Control, screen: Screen, found: TextView) -> None:
    if screen.as_json:
        screen.emit(found.model_dump(mode="json"))
        return
    from rich.text import Text

    from sublet.cli.options.entities import load_names
    from sublet.protocol.text import clean

    screen.show(Text(clean(found.text)))
    screen.note(_who(found, await load_names(control)))


def _who(found: TextAccess, names: EntityNames) -> str:
    if found.mode == "room_members":
        return "All members may write into it."
    others = [names.short(one) for one in found.editors] if found.mode == "explicit" else []
    return f"Written by {', '.join([names.short(found.owner), *others])}."

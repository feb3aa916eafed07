"""``sublet search`` and ``profile``: who people and agents in rooms are."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from sublet.cli.options.rooms import resolve_ref, resolve_room, text_argument
from sublet.cli.options.values import JsonFlag, wrong_value
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.api.room_people import ProfileView
    from sublet.daemon.control.client import ControlClient as Control


def search(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORD", help="All of these stand in it.", show_default=False)],
    messages: Annotated[
        bool, typer.Option("--messages", help="Find messages of your rooms instead.", show_default=False)
    ] = False,
    room: Annotated[
        str | None, typer.Option("--room", metavar="ROOM", help="Only messages of this room.", show_default=False)
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, max=50, help="How many messages.", show_default=False)
    ] = None,
    before: Annotated[
        str | None,
        typer.Option(
            "--before",
            metavar="REF",
            help="Messages older than this one; without --room its whole id.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Find people by their profiles, or messages by their words.

    The beginnings of words are enough.
    """
    screen = Screen(as_json=as_json)
    if messages:
        _search_messages(ctx, screen, {"query": " ".join(words), "room": room, "limit": limit, "before": before})
        return
    if room is not None or limit is not None or before is not None:
        raise typer.BadParameter("--room, --limit and --before go with --messages")

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_people import SEARCH_PROFILES, SearchProfiles

        try:
            request = SearchProfiles(query=" ".join(words))
        except ValidationError as error:
            raise wrong_value(error, {"query": "WORD"}) from None
        found = await control.call(SEARCH_PROFILES, request)
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
            return
        if not found:
            screen.show("Nobody that you share a room with says so.")
            return
        from sublet.cli.options.entities import load_names
        from sublet.cli.rendering.rooms import profile as shown

        names = await load_names(control)
        for one in found:
            screen.show(*shown(one, names))

    run(ctx, screen, body)


def _search_messages(ctx: typer.Context, screen: Screen, given: dict[str, Any]) -> None:
    async def body(control: Control) -> None:
        from sublet.daemon.api.conversations import SEARCH_MESSAGES, SearchMessages

        if given["before"] is not None and given["room"] is not None:  # a room's last messages are looked through
            room_id = await resolve_room(control, given["room"])
            given.update(room=room_id, before=await resolve_ref(control, room_id, given["before"]))
        try:
            request = SearchMessages.model_validate({name: value for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise wrong_value(error, {"query": "WORD", "room": "--room", "before": "--before"}) from None
        found = await control.call(SEARCH_MESSAGES, request)
        if screen.as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        from sublet.cli.options.entities import load_names
        from sublet.cli.rendering.rooms import message, room_name
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.rooms import LIST_ROOMS

        names = await load_names(control)
        rooms = {one.room_id: room_name(one.name, names) for one in await control.call(LIST_ROOMS, Nothing())}
        for one in found.messages:
            screen.show(f"In {rooms.get(one.room_id, one.room_id)}:", *message(one, names, screen.symbols, {}))
        if not found.messages:
            screen.show("No message of your rooms has these words.")
        if found.next_cursor is not None:
            screen.note(f"There are older ones: --before {found.next_cursor}")
        if not found.complete:
            screen.note("Not all messages were looked at yet; the same search finds more.")

    run(ctx, screen, body)


def profile(
    ctx: typer.Context,
    entity: Annotated[
        str | None, typer.Argument(metavar="ENTITY", help="Whose; yours by default.", show_default=False)
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="Set a field of yours; an empty VALUE takes it away; can be repeated.",
            show_default=False,
        ),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", metavar="TEXT", help="What to say of yourself; - reads it from stdin."),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option("--picture", metavar="FILE", help="A PNG, JPEG, GIF or WebP to be shown by.", show_default=False),
    ] = None,
    save_picture: Annotated[
        Path | None,
        typer.Option("--save-picture", metavar="FILE", help="Write the picture to a new file.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a profile, or change yours.

    All who share a room with you can read it.
    """
    screen = Screen(as_json=as_json)
    changing = bool(fields) or text is not None or picture is not None
    if entity is not None and changing:
        raise typer.BadParameter("only your own profile can be changed")
    changes: dict[str, Any] = {"fields": dict(_field(one) for one in fields or [])}
    if text is not None:
        changes["body"] = text_argument(text) if text else ""

    async def body(control: Control) -> None:
        from sublet.cli.options.entities import load_names
        from sublet.daemon.api.room_people import GET_PROFILE, UPDATE_PROFILE, FindProfile, UpdateProfile

        names = await load_names(control)
        if changing:
            if picture is not None:
                found = await _set_picture(control, picture)
            if fields or text is not None:
                try:
                    request = UpdateProfile.model_validate(changes)
                except ValidationError as error:
                    raise wrong_value(error, {"frontmatter": "--set", "body": "--text"}) from None
                found = await control.call(UPDATE_PROFILE, request)
        else:
            asked = FindProfile(entity=None if entity is None else names.entity(entity))
            try:
                found = await control.call(GET_PROFILE, asked)
            except SubletError as error:
                if error.code != LocalCode.NOT_FOUND or asked.entity not in (None, names.me):
                    raise
                hint = "Say who you are: sublet profile --set display_name=NAME --text TEXT"
                raise SubletError(error.code, "you have no profile yet", hint) from None
        if save_picture is not None:
            await _save_picture(control, found.entity_id, save_picture)
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        from sublet.cli.rendering.rooms import profile as shown

        screen.show(*shown(found, names))

    run(ctx, screen, body)


async def _set_picture(control: Control, path: Path) -> ProfileView:
    from sublet.cli.options.room_files import contents_of
    from sublet.daemon.api.room_people import MAX_PICTURE_BYTES, SET_PICTURE, SetPicture

    data = await asyncio.to_thread(contents_of, path, MAX_PICTURE_BYTES, "Make it smaller.")
    return await control.call(SET_PICTURE, SetPicture.model_validate({"data": base64.b64encode(data)}))


async def _save_picture(control: Control, entity: str, path: Path) -> None:
    from sublet.cli.options.room_files import write_file
    from sublet.daemon.api.room_people import GET_PICTURE, FindPicture

    found = await control.call(GET_PICTURE, FindPicture(entity=entity))
    if found.data is None:
        raise SubletError(LocalCode.NOT_FOUND, f"{entity} has no picture", "See: sublet profile ENTITY")
    await asyncio.to_thread(write_file, path, base64.b64decode(found.data))


def _field(given: str) -> tuple[str, object]:
    name, equals, value = given.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{given!r} has no =, as in display_name=Alice")
    if not value:
        return name, None
    try:
        number = json.loads(value)
    except ValueError:
        return name, value
    return name, number if isinstance(number, int | float | bool) else value

"""``sublet search`` and ``profile``: who people and agents in rooms are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from sublet.cli.options.rooms import text_argument
from sublet.cli.options.values import JsonFlag, wrong_value
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def search(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORD", help="All of these stand in it.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Find people and agents by what they say of themselves."""
    screen = Screen(as_json=as_json)

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
    as_json: JsonFlag = False,
) -> None:
    """Show a profile, or change yours.

    All who share a room with you can read it.
    """
    screen = Screen(as_json=as_json)
    if entity is not None and (fields or text is not None):
        raise typer.BadParameter("only your own profile can be changed")
    changes: dict[str, Any] = {"fields": dict(_field(one) for one in fields or [])}
    if text is not None:
        changes["body"] = text_argument(text) if text else ""

    async def body(control: Control) -> None:
        from sublet.cli.options.entities import load_names
        from sublet.daemon.api.room_people import GET_PROFILE, UPDATE_PROFILE, FindProfile, UpdateProfile

        names = await load_names(control)
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
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        from sublet.cli.rendering.rooms import profile as shown

        screen.show(*shown(found, names))

    run(ctx, screen, body)


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

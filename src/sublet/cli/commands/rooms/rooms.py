"""``sublet room``: rooms between daemons, and their config."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from sublet.cli.help import Sectioned, listing
from sublet.cli.options.rooms import RoomArgument, resolve_room
from sublet.cli.options.values import JsonFlag, wrong_value
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

room = listing("room", "Rooms in which people and agents of paired daemons talk.")

ABOUT, MEMBERS = "Rooms", "Members"
MAX_UNREAD_ASKED = 100
"""Rooms of which it is asked how much of them is unread."""


@room.command(cls=Sectioned, name="create", rich_help_panel=ABOUT)
def room_create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.", show_default=False)],
    policy: Annotated[
        str, typer.Option("--policy", metavar="POLICY", help="How others come in: open, knock or invite.")
    ] = "invite",
    encryption: Annotated[
        str | None,
        typer.Option(
            "--encryption",
            metavar="LEVEL",
            help="Who can't read what is said there: members (all but members) or transport_only (who taps a link). "
            "By default members, or what messaging.encryption in config.json says.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Open a room that you own."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.rooms import CREATE_ROOM, LIST_ROOMS, CreateRoom

        try:
            request = CreateRoom.model_validate({"name": name, "policy": policy, "encryption": encryption})
        except ValidationError as error:
            options = {"name": "NAME", "policy": "--policy", "encryption": "--encryption"}
            raise wrong_value(error, options) from None
        made = await control.call(CREATE_ROOM, request)
        if as_json:
            screen.emit(made.model_dump(mode="json"))
            return
        screen.out.print(made.room_id)
        if len([one for one in await control.call(LIST_ROOMS, Nothing()) if one.name == name]) > 1:
            screen.note("Another room has that name too, so give the id of the one that you mean.")

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="list", rich_help_panel=ABOUT)
def room_list(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List the rooms that you are a member of, the last used first.

    Rooms of delegations, in which agents tell of their work, and closed ones stand apart.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.rooms import LIST_ROOMS

        found = await control.call(LIST_ROOMS, Nothing())
        if as_json:
            screen.emit([one.model_dump(mode="json") for one in found])
        elif not found:
            screen.show("No rooms. Open one: sublet room create NAME")
        else:
            from sublet.cli.options.entities import load_names
            from sublet.cli.rendering.rooms import rooms
            from sublet.daemon.api.room_fields import OneRoom
            from sublet.daemon.api.room_people import GET_READING

            # For people, who have few; each is one short question.
            unread = {
                one.room_id: (await control.call(GET_READING, OneRoom(room_id=one.room_id))).unread
                for one in [room for room in found if not room.closed][:MAX_UNREAD_ASKED]
            }
            screen.show(*rooms(found, await load_names(control), unread))

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="show", rich_help_panel=ABOUT)
def room_show(ctx: typer.Context, room: RoomArgument, as_json: JsonFlag = False) -> None:
    """Show a room, its members, and who asks to be let in."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.room_fields import OneRoom
        from sublet.daemon.api.rooms import GET_ROOM

        found = await control.call(GET_ROOM, OneRoom(room_id=await resolve_room(control, room)))
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        from sublet.cli.options.entities import load_names
        from sublet.cli.rendering.rooms import room as shown

        screen.show(*shown(found, await load_names(control)))

    run(ctx, screen, body)


@room.command(cls=Sectioned, name="config", rich_help_panel=ABOUT)
def room_config(
    ctx: typer.Context,
    room: RoomArgument,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="Call it so.", show_default=False)] = None,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="POLICY", help="How others come in: open, knock, invite.", show_default=False),
    ] = None,
    enable: Annotated[
        list[str] | None,
        typer.Option("--enable", metavar="EXT", help="Enable an extension; can be repeated.", show_default=False),
    ] = None,
    disable: Annotated[
        list[str] | None,
        typer.Option("--disable", metavar="EXT", help="Disable an extension; can be repeated.", show_default=False),
    ] = None,
    level: Annotated[
        list[str] | None,
        typer.Option(
            "--level",
            metavar="WHAT=N",
            help="Power that is asked for: default, events_default, admin.",
            show_default=False,
        ),
    ] = None,
    power: Annotated[
        list[str] | None,
        typer.Option("--power", metavar="ENTITY=N", help="Power of a member, 0 to 100.", show_default=False),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role", metavar="ENTITY=ROLE", help="Role of a member: member, admin, owner.", show_default=False
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FIELD=VALUE", help="Another field; VALUE may be JSON.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show a room's config, or change what options name.

    Changes take the power of an admin of the room.
    """
    screen = Screen(as_json=as_json)
    changes: dict[str, Any] = {
        "name": name,
        "policy": policy,
        "enable": enable or [],
        "disable": disable or [],
        "levels": {what: _number(value) for what, value in _pairs(level)},
        "fields": {what: _json(value) for what, value in _pairs(fields)},
    }
    powers = {who: _number(value) for who, value in _pairs(power)}
    roles = dict(_pairs(role))

    async def body(control: Control) -> None:
        from sublet.cli.options.entities import load_names
        from sublet.daemon.api.room_fields import OneRoom
        from sublet.daemon.api.room_members import CONFIGURE_ROOM, ConfigureRoom
        from sublet.daemon.api.rooms import GET_ROOM

        room_id = await resolve_room(control, room)
        if any(changes.values()) or powers or roles:
            names = await load_names(control)
            changes["powers"] = {names.entity(who): value for who, value in powers.items()}
            changes["roles"] = {names.entity(who): value for who, value in roles.items()}
            try:
                request = ConfigureRoom.model_validate({"room_id": room_id, **changes})
            except ValidationError as error:
                raise wrong_value(error) from None
            found = await control.call(CONFIGURE_ROOM, request)
        else:
            found = await control.call(GET_ROOM, OneRoom(room_id=room_id))
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        from sublet.cli.rendering.rooms import config

        screen.show(*config(found))

    run(ctx, screen, body)


def _pairs(given: Sequence[str] | None) -> list[tuple[str, str]]:
    found = []
    for one in given or []:
        what, equals, value = one.rpartition("=")
        if "=" in what:  # of a VALUE that has one itself
            what, equals, value = one.partition("=")
        if not what or not equals:
            raise typer.BadParameter(f"{one!r} has no =, as in events_default=0")
        found.append((what, value))
    return found


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 3:
        raise typer.BadParameter(f"{text!r} is no power from 0 to 100")
    return int(text)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text

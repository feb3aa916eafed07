"""Commands about offices: create, list, token, kick, close; ``serve-tools`` is in a module of its own."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.help import Sectioned, listing
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

OfficeArgument = Annotated[str, typer.Argument(metavar="OFFICE", help="Office, by its name or id.", show_default=False)]


class MemberRole(StrEnum):
    """For whom a token is."""

    AGENT = "agent"
    COMPUTER = "computer"


office = listing("office", "Offices, in which one Agent uses the tools of Computers (A2C-SMCP).")


@office.command(cls=Sectioned, name="create")
def office_create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What you call it.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Open an office. Nobody can join before `sublet office token` has made a token."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.offices import CREATE_OFFICE, CreateOffice

        made = await control.call(CREATE_OFFICE, CreateOffice(name=name))
        if as_json:
            screen.emit(made.model_dump(mode="json"))
            return
        screen.out.print(made.office_id, soft_wrap=True)
        screen.note(f"Let somebody in:  sublet office token {made.name} --role computer --name NAME")

    run(ctx, screen, body)


@office.command(cls=Sectioned, name="list")
def office_list(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List the offices, and who may be and who is in each."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.offices import LIST_OFFICES
        from sublet.daemon.api.operation import Nothing

        known = await control.call(LIST_OFFICES, Nothing())
        if as_json:
            screen.emit(known.model_dump(mode="json"))
        elif known.offices:
            from sublet.cli.rendering.offices import office_table

            screen.show(office_table(known.offices))
            if known.url:
                screen.note(f"Served at {known.url}")
        else:
            screen.note("No offices. `sublet office create NAME` opens one.")

    run(ctx, screen, body)


@office.command(cls=Sectioned, name="token")
def office_token(
    ctx: typer.Context,
    office_name: OfficeArgument,
    role: Annotated[MemberRole, typer.Option(help="What it joins as.", show_default=False)],
    name: Annotated[str, typer.Option(metavar="NAME", help="Under which name.", show_default=False)],
    replace: Annotated[
        bool, typer.Option("--replace", help="Make the token useless that this name has already.", show_default=False)
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the token of one client, and show it this once."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.offices import CREATE_OFFICE_TOKEN, CreateOfficeToken
        from sublet.protocol.offices.names import Role

        request = CreateOfficeToken(office=office_name, role=Role(role), name=name, replace=replace)
        made = await control.call(CREATE_OFFICE_TOKEN, request)
        if as_json:
            screen.emit(made.model_dump(mode="json"))
            return
        # the token alone on stdout, whole, so that it can be copied and piped
        screen.out.print(made.token, soft_wrap=True)
        screen.note(f"Shown this once. It lets {made.name} in as {made.role}, into office {made.office_id}")
        screen.note(f"The client connects to {made.url} with auth {{'token': TOKEN}}")

    run(ctx, screen, body)


@office.command(cls=Sectioned, name="kick")
def office_kick(
    ctx: typer.Context,
    office_name: OfficeArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whom to send away.", show_default=False)],
    as_json: JsonFlag = False,
) -> None:
    """Send a member away for good: its token is useless at once."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.offices import KICK_OFFICE_MEMBER, KickMember

        gone = await control.call(KICK_OFFICE_MEMBER, KickMember(office=office_name, name=name))
        if as_json:
            screen.emit(gone.model_dump(mode="json"))
        else:
            was = "was there" if gone.was_connected else "was not there"
            screen.show(f"{gone.name} ({gone.role}) is out; it {was}.")

    run(ctx, screen, body)


@office.command(cls=Sectioned, name="close")
def office_close(ctx: typer.Context, office_name: OfficeArgument, as_json: JsonFlag = False) -> None:
    """Close an office for good.

    All its tokens become useless, and its members' connections end.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.offices import CLOSE_OFFICE, OneOffice

        closed = await control.call(CLOSE_OFFICE, OneOffice(office=office_name))
        if as_json:
            screen.emit(closed.model_dump(mode="json"))
        else:
            screen.show(f"Closed {closed.name}.")

    run(ctx, screen, body)

"""``sublet device``: daemons that speak as one person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import ValidationError
from rich.text import Text

from sublet.cli.help import Sectioned, listing
from sublet.cli.options.values import JsonFlag, wrong_value
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.api.devices import DevicesView
    from sublet.daemon.control.client import ControlClient as Control

device = listing("device", "Your devices: daemons that speak as you, each with its own key.")


@device.command(cls=Sectioned, name="link")
def device_link(
    ctx: typer.Context,
    peer: Annotated[
        str,
        typer.Argument(
            metavar="PEER", help="The paired daemon where you are at home, by its name.", show_default=False
        ),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="What to call this device: a-z, 0-9, dot, dash, underscore.")
    ],
    as_json: JsonFlag = False,
) -> None:
    """On a new device: show a link and a QR code, to be added by.

    Your other daemon adds it: sublet device add LINK. Both are to be paired before: sublet pair, sublet peers add.
    Nothing in the link is secret.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.devices import LINK_DEVICE, LinkDevice

        try:
            request = LinkDevice.model_validate({"peer": peer, "name": name})
        except ValidationError as error:
            raise wrong_value(error, {"peer": "PEER", "name": "--name"}) from None
        made = await control.call(LINK_DEVICE, request)
        if as_json:
            screen.emit(made.model_dump(mode="json"))
            return
        # The link alone on stdout, whole, so that it can be copied and piped.
        screen.out.print(made.link, soft_wrap=True)
        for line in _code(made.link):
            screen.note(line)
        screen.note(f"Where you are {made.entity_id}:  sublet device add LINK")
        screen.note(f"It shows the same key of this daemon:  {made.fingerprint}")

    run(ctx, screen, body)


@device.command(cls=Sectioned, name="add")
def device_add(
    ctx: typer.Context,
    link: Annotated[
        str,
        typer.Argument(metavar="LINK", help="What `sublet device link` shows on the new device.", show_default=False),
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask; the key was compared before.", show_default=False)] = (
        False
    ),
    as_json: JsonFlag = False,
) -> None:
    """Let the device that shows LINK speak as you.

    It reads your rooms, and writes in them, until you remove it.
    """
    screen = Screen(as_json=as_json)
    if not yes:
        from sublet.protocol.ezagent.errors import Refused
        from sublet.protocol.ezagent.sealing.device_link import parse_link
        from sublet.protocol.ids import fingerprint

        try:
            asked = parse_link(link)
        except Refused:
            asked = None  # the daemon says what is wrong
        if asked is not None:
            screen.note(f"{asked.name} has the key {fingerprint(asked.key)}: the new device shows the same one.")
            typer.confirm("Let it speak as you?", abort=True, err=True)

    async def body(control: Control) -> None:
        from sublet.daemon.api.devices import ADD_DEVICE, AddDevice

        try:
            request = AddDevice(link=link)
        except ValidationError as error:
            raise wrong_value(error, {"link": "LINK"}) from None
        made = await control.call(ADD_DEVICE, request)
        if as_json:
            screen.emit(made.model_dump(mode="json"))
            return
        screen.show(f"{made.name} speaks as you now.")
        screen.note(f"If it is lost: sublet device remove {made.name}")

    run(ctx, screen, body)


@device.command(cls=Sectioned, name="list")
def device_list(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List the daemons that speak as you."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.devices import LIST_DEVICES
        from sublet.daemon.api.operation import Nothing

        found = await control.call(LIST_DEVICES, Nothing())
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        else:
            _show(screen, found)

    run(ctx, screen, body)


@device.command(cls=Sectioned, name="remove")
def device_remove(
    ctx: typer.Context,
    which: Annotated[
        str, typer.Argument(metavar="DEVICE", help="Its name, or the beginning of its id.", show_default=False)
    ],
    as_json: JsonFlag = False,
) -> None:
    """Let a device speak as you no more, for good.

    It gets no key of a sealed room from now on. What it has read, it has read, and what it has written stays.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.devices import REMOVE_DEVICE, OneDevice

        gone = await control.call(REMOVE_DEVICE, OneDevice(device=which))
        if as_json:
            screen.emit(gone.model_dump(mode="json"))
            return
        screen.show(f"{gone.name or 'the first device'} speaks as you no more.")
        screen.note("It is still paired with this daemon, if it was: sublet peers list")

    run(ctx, screen, body)


def _show(screen: Screen, found: DevicesView) -> None:
    from sublet.cli.rendering.columns import Columns

    rows = [
        [Text(one.name or "(first)"), Text("this daemon" if one.this else ""), Text(one.id[:12]), Text(one.node_id)]
        for one in found.devices
    ]
    screen.show(f"You are {found.entity_id}.", Columns(["device", "", "id", "daemon"], rows))
    if found.waits_for is not None:
        screen.note(f"This daemon waits until {found.waits_for} adds it: sublet device add LINK, there.")
    if found.standing == "removed":
        screen.note("This daemon was another person's device, and was removed; it speaks as its own again.")


def _code(link: str) -> list[str]:
    """Return a link as a QR code in half blocks, dark on light where the terminal is dark."""
    import io

    import segno

    out = io.StringIO()
    segno.make(link, error="l", micro=False).terminal(out, border=2, compact=True)
    return out.getvalue().splitlines()

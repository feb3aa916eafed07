"""``sublet register``: a name for this daemon at its relay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def register(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Such as alice.", show_default=False)],
    at: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="The relay's registration port. [default: the one after the relay's]"),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Register a name for this daemon at its relay, which then carries its rooms."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.relay import REGISTER_NAME, RegisterName

        found = await control.call(REGISTER_NAME, RegisterName(name=name, at=at))
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        screen.show(f"This daemon is {found.entity_id} at {found.relay}.")
        screen.note(f"Its key, for who pairs with it by that name: {found.fingerprint}")
        screen.note(f"Its certificate is renewed by itself, the next time before {found.expires_at}.")

    run(ctx, screen, body)

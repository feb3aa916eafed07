"""Commands about gateways: list, show, start, stop, send."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.help import Sectioned, listing
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.text import clean

if TYPE_CHECKING:
    from sublet.daemon.api.gateways import GatewayView
    from sublet.daemon.control.client import ControlClient as Control

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Gateway, by its id.", show_default=False)]

gateway = listing("gateway", "Programs that bring requests, and carry answers.")


@gateway.command(cls=Sectioned, name="list")
def gateway_list(ctx: typer.Context, as_json: JsonFlag = False) -> None:
    """List the gateways and how they are."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.gateways import LIST_GATEWAYS
        from sublet.daemon.api.operation import Nothing

        found = await control.call(LIST_GATEWAYS, Nothing())
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        for one in found.gateways:
            screen.show(_line(one))
        for problem in found.problems:
            screen.note(f"Not usable: {clean(problem.directory)}: {clean(problem.problem)}")
        if not found.gateways:
            screen.note("There are none. See docs/modules.md for how to add one.")

    run(ctx, screen, body)


@gateway.command(cls=Sectioned, name="show")
def gateway_show(ctx: typer.Context, gateway_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Show a gateway, and how its program connects.

    One that speaks http or websocket connects by the address and token that are shown.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.gateways import GET_GATEWAY, OneGateway

        found = await control.call(GET_GATEWAY, OneGateway(gateway_id=gateway_id))
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        screen.show(_line(found))
        screen.show(f"about  {clean(found.description)}, version {clean(found.version)}")
        if found.url:
            screen.show(f"url    {found.url}")
        if found.token:
            screen.show(f"token  {found.token}")

    run(ctx, screen, body)


@gateway.command(cls=Sectioned, name="start")
def gateway_start(ctx: typer.Context, gateway_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Start a gateway's program, or let it connect."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.gateways import START_GATEWAY, OneGateway

        _told(screen, await control.call(START_GATEWAY, OneGateway(gateway_id=gateway_id)))

    run(ctx, screen, body)


@gateway.command(cls=Sectioned, name="stop")
def gateway_stop(ctx: typer.Context, gateway_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Stop a gateway; what waits for it is rejected."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.gateways import STOP_GATEWAY, OneGateway

        _told(screen, await control.call(STOP_GATEWAY, OneGateway(gateway_id=gateway_id)))

    run(ctx, screen, body)


@gateway.command(cls=Sectioned, name="send")
def gateway_send(
    ctx: typer.Context,
    gateway_id: IdArgument,
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What to deliver: JSON, or words.")],
    asynchronous: Annotated[bool, typer.Option("--async", help="Be content when it was taken.")] = False,
    sync: Annotated[bool, typer.Option("--sync", help="Wait for its result.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Have a gateway deliver a message."""
    screen = Screen(as_json=as_json)
    if sync and asynchronous:
        raise typer.BadParameter("--sync and --async exclude each other")

    async def body(control: Control) -> None:
        from sublet.daemon.api.gateways import SEND_TO_GATEWAY, SendToGateway

        mode = "sync" if sync else "async" if asynchronous else None
        request = SendToGateway.model_validate({"gateway_id": gateway_id, "message": _message(message), "mode": mode})
        found = await control.call(SEND_TO_GATEWAY, request)
        if as_json:
            screen.emit(found.model_dump(mode="json"))
        elif found.output is None:
            screen.note("It was taken.")
        else:
            shown = found.output if isinstance(found.output, str) else json.dumps(found.output, ensure_ascii=False)
            screen.show(clean(shown))

    run(ctx, screen, body)


def _message(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _told(screen: Screen, view: GatewayView) -> None:
    if screen.as_json:
        screen.emit(view.model_dump(mode="json"))
    else:
        screen.show(_line(view))


def _line(view: GatewayView) -> str:
    detail = f": {clean(view.detail)}" if view.detail else ""
    health = f"  health: {clean(view.health)}" if view.health else ""
    return f"{view.id}  {view.direction}  {view.protocol}  {'/'.join(view.modes)}  {view.state}{detail}{health}"

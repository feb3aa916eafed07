"""``sublet receipts``: what became of a message."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.rooms import RoomArgument, resolve_ref, resolve_room
from sublet.cli.options.values import JsonFlag, typed
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.cli.rendering.words import whole_line

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control

STATES = ("delivered", "read")


def receipts(
    ctx: typer.Context,
    room: RoomArgument,
    ref: Annotated[
        str,
        typer.Argument(metavar="REF", help="A message of yours: its id, the end of one, or last.", show_default=False),
    ],
    until: Annotated[
        str | None, typer.Option("--until", metavar="STATE", help="Wait for delivered or read.", show_default=False)
    ] = None,
    wait: Annotated[float, typer.Option("--wait", metavar="S", min=0, help="For how many seconds at most.")] = 60,
    as_json: JsonFlag = False,
) -> None:
    """Print what became of a message of yours, for each recipient.

    queued: it is kept here. delivered: the recipient's daemon has signed that it keeps it. read: the recipient has read
    it. undeliverable: the recipient has left, or its daemon is silent for too long; it is kept here all the same.
    """
    if until is not None and until not in STATES:
        raise typer.BadParameter(f"{' or '.join(STATES)}", param_hint="--until")
    if until is None and typed(ctx, "wait"):
        raise typer.BadParameter("--wait goes with --until: it says what is waited for")
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.cli.options.entities import load_names
        from sublet.daemon.api.base import MAX_WAIT_SECONDS
        from sublet.daemon.api.operation import Nothing
        from sublet.daemon.api.room_messages import GET_RECEIPTS, AskReceipts
        from sublet.daemon.api.rooms import WHOAMI

        room_id, end = await resolve_room(control, room), time.monotonic() + (wait if until is not None else 0)
        me = (await control.call(WHOAMI, Nothing())).entity_id
        message = {"room_id": room_id, "ref_id": await resolve_ref(control, room_id, ref, of=me)}
        while True:
            left = max(end - time.monotonic(), 0)
            request = AskReceipts.model_validate({**message, "until": until, "wait": min(left, MAX_WAIT_SECONDS)})
            found = await control.call(GET_RECEIPTS, request)
            if left <= MAX_WAIT_SECONDS or found.receipt in ("undeliverable", *STATES[STATES.index(until or "read") :]):
                break
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        if found.purged:
            screen.show("It was purged since, and is gone from those who have received it, too.")
        if not found.recipients:
            screen.show("Nobody else was in the room.")
        names = await load_names(control)
        for one in found.recipients:
            reason = f"  ({whole_line(one.reason)})" if one.reason else ""
            screen.show(f"{one.receipt}  {names.short(one.entity)}{reason}")

    run(ctx, screen, body)

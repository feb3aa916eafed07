"""Commands that steer a delegation while it runs: extend, say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.delegations import IdArgument, resolve
from sublet.cli.options.given_text import text_of
from sublet.cli.options.values import JsonFlag, duration
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.bounds import MAX_PROMPT_CHARS
from sublet.protocol.ids import new_follow_up_id

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def extend(
    ctx: typer.Context,
    delegation_id: IdArgument,
    ttl: Annotated[
        int | None,
        typer.Option("--ttl", metavar="TIME", parser=duration, help="How much longer: seconds, or 15m, 2h."),
    ] = None,
    seconds: Annotated[int | None, typer.Option("--seconds", metavar="N", min=1, help="The same, in seconds.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a delegation more time, as far as both sides allow.

    Both sides count the time from the start of the lease, and neither gives more than its policy says.
    """
    screen = Screen(as_json=as_json)
    if (ttl is None) == (seconds is None):
        raise typer.BadParameter("give the time by --ttl or by --seconds")
    more = ttl or seconds or 0

    async def body(control: Control) -> None:
        from sublet.daemon.api.delegation_fields import OneDelegation
        from sublet.daemon.api.delegations import EXTEND_DELEGATION, GET_DELEGATION, ExtendDelegation

        found = await resolve(control, delegation_id)
        before = await control.call(GET_DELEGATION, OneDelegation(delegation_id=found))
        view = await control.call(EXTEND_DELEGATION, ExtendDelegation(delegation_id=found, seconds=more))
        if as_json:
            screen.emit(view.model_dump(mode="json"))
            return
        from sublet.cli.rendering.delegations import span

        gained = view.ttl_seconds - before.ttl_seconds
        short = f", less than the {span(more)} asked for, by the limits of both sides" if gained < more else ""
        left = "" if view.remaining_seconds is None else f"; {span(view.remaining_seconds)} are left"
        screen.show(f"{found} has {span(gained)} more{short}{left}.")

    run(ctx, screen, body)


def say(
    ctx: typer.Context,
    delegation_id: IdArgument,
    prompt: Annotated[
        str,
        typer.Argument(metavar="PROMPT", help="What to do next; - reads it from stdin.", show_default=False),
    ],
    key: Annotated[
        str | None, typer.Option("--id", metavar="KEY", help="Makes saying it twice harmless.", show_default=False)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Give the agent a further prompt in the same lease.

    It works on it in the same directory once it has done what it does, and the delegation ends when no prompt waits.
    """
    screen = Screen(as_json=as_json)
    # one character more than is allowed tells a prompt that is too long
    text = text_of(prompt, MAX_PROMPT_CHARS, "the prompt")
    if not text.strip():
        raise typer.BadParameter("the prompt is empty")
    if len(text) > MAX_PROMPT_CHARS:
        raise typer.BadParameter(f"the prompt must have 1 to {MAX_PROMPT_CHARS:,} characters")

    async def body(control: Control) -> None:
        from sublet.daemon.api.delegations import SAY_MORE, SayMore

        found = await resolve(control, delegation_id)
        named = key or new_follow_up_id()
        view = await control.call(SAY_MORE, SayMore(delegation_id=found, prompt=text, follow_up_id=named))
        if as_json:
            screen.emit(view.model_dump(mode="json"))
            return
        number, said = next((n, one) for n, one in enumerate(view.follow_ups, 1) if one.id == named)
        if said.state == "pending":
            screen.show(f"{view.peer} can't be heard now; it is told as soon as it can.")
            return
        now = {"delivered": "has it", "running": "works on it", "done": "has done it"}.get(said.state, "failed in it")
        screen.show(f"{view.peer} {now} as follow-up {number} of {found}.")

    run(ctx, screen, body)

"""``sublet events``: what has happened, and what happens now."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.options.completion import complete_delegation
from sublet.cli.options.delegations import resolve
from sublet.cli.options.sessions import resolve_session
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.text import clean_line

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control
    from sublet.protocol.events import Event

PAGE = 500
KINDS = ", ".join(EventKind)

EPILOG = f"Kinds: {KINDS}."


def events(
    ctx: typer.Context,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on as events come, until interrupted.", show_default=False)
    ] = False,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Only of this session; or last.", show_default=False),
    ] = None,
    delegation: Annotated[
        str | None,
        typer.Option(
            "--delegation",
            metavar="ID",
            help="Only of this delegation; or last.",
            show_default=False,
            autocompletion=complete_delegation,
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--kind", metavar="KIND", help="Only of this kind, as tool_call.", show_default=False),
    ] = None,
    since: Annotated[int, typer.Option("--since", metavar="SEQ", min=0, help="After the event of this number.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line.", show_default=False)
    ] = False,
) -> None:
    """Show what has happened, and follow it.

    Routes, calls of tools, answers, refusals, delegations.

    Each event has a number, and names the one that it follows from.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.events import FOLLOW_EVENTS, READ_EVENTS, FollowEvents, ReadEvents

        if kind is not None and kind not in set(EventKind):
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, f"there is no kind of event {clean_line(kind, 80)!r}", f"Kinds: {KINDS}."
            )
        session_id = None if session is None else await resolve_session(control, session)
        delegation_id = None if delegation is None else await resolve(control, delegation)

        def show(event: Event) -> None:
            if as_json:
                screen.emit(event.model_dump(mode="json"))
                return
            from sublet.cli.rendering.events import event_line

            screen.show(event_line(event, cuts=screen.cuts))

        only = None if kind is None else EventKind(kind)
        asked = ReadEvents(cursor=since, delegation_id=delegation_id, session_id=session_id, kind=only, limit=PAGE)
        while True:
            page = await control.call(READ_EVENTS, asked)
            asked = asked.model_copy(update={"cursor": page.cursor})
            for event in page.events:
                show(event)
            if not page.events:
                break
        if follow:
            news = control.follow(
                FOLLOW_EVENTS,
                FollowEvents(cursor=asked.cursor, delegation_id=delegation_id, session_id=session_id, kind=only),
            )
            async with aclosing(news) as coming:
                async for event in coming:
                    show(event)

    run(ctx, screen, body)

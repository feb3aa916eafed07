"""Commands about sessions: list, show, create, resume, pause, complete, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.help import Sectioned, listing
from sublet.cli.options.sessions import resolve_session
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.api.sessions import Settable
    from sublet.daemon.control.client import ControlClient as Control

IdArgument = Annotated[
    str,
    typer.Argument(metavar="ID", help="Session; its beginning is enough, or last.", show_default=False),
]

sessions = listing("sessions", "What was asked, who did it, and who goes on with what.")


@sessions.command(cls=Sectioned, name="list")
def sessions_list(
    ctx: typer.Context,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, max=500, help="How many.")] = 20,
    as_json: JsonFlag = False,
) -> None:
    """List the sessions that were used last."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.sessions import LIST_SESSIONS, ListSessions

        found = await control.call(LIST_SESSIONS, ListSessions(limit=limit))
        if as_json:
            screen.emit({"sessions": [one.model_dump(mode="json", by_alias=True) for one in found]})
        elif found:
            from sublet.cli.rendering.sessions import session_table

            screen.show(session_table(found))
        else:
            screen.note('No sessions yet. Begin one: sublet ask "…"')

    run(ctx, screen, body)


@sessions.command(cls=Sectioned, name="show")
def sessions_show(
    ctx: typer.Context,
    session_id: IdArgument,
    messages: Annotated[
        int, typer.Option("--messages", metavar="N", min=0, max=200, help="How many of the newest messages.")
    ] = 20,
    as_json: JsonFlag = False,
) -> None:
    """Show a session's messages, route and bindings."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.sessions import GET_SESSION, ShowSession

        request = ShowSession(session_id=await resolve_session(control, session_id), messages=messages)
        found = await control.call(GET_SESSION, request)
        if as_json:
            screen.emit(found.model_dump(mode="json", by_alias=True))
            return
        from sublet.cli.rendering.sessions import session_details

        screen.show(*session_details(found))

    run(ctx, screen, body)


@sessions.command(cls=Sectioned, name="create")
def sessions_create(
    ctx: typer.Context,
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What it is about.", show_default=False)] = "",
    as_json: JsonFlag = False,
) -> None:
    """Begin a session; `ask --session` goes on with it."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.sessions import CREATE_SESSION, NewSession

        made = await control.call(CREATE_SESSION, NewSession(title=title))
        if as_json:
            screen.emit(made.model_dump(mode="json", by_alias=True))
        else:
            screen.out.print(made.finger_session_id)

    run(ctx, screen, body)


@sessions.command(cls=Sectioned, name="resume")
def sessions_resume(ctx: typer.Context, session_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Let a session take input again."""
    _change(ctx, session_id, "active", as_json=as_json)


@sessions.command(cls=Sectioned, name="pause")
def sessions_pause(ctx: typer.Context, session_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Let a session take no more input for now.

    What runs in it goes on.
    """
    _change(ctx, session_id, "paused", as_json=as_json)


@sessions.command(cls=Sectioned, name="complete")
def sessions_complete(ctx: typer.Context, session_id: IdArgument, as_json: JsonFlag = False) -> None:
    """End a session: it takes no more input.

    `prune` may remove it when it is old.
    """
    _change(ctx, session_id, "completed", as_json=as_json)


@sessions.command(cls=Sectioned, name="delete")
def sessions_delete(ctx: typer.Context, session_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Forget a session with its messages.

    What the agents' providers keep of it is theirs.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.sessions import DELETE_SESSION, OneSession

        gone = await control.call(DELETE_SESSION, OneSession(session_id=await resolve_session(control, session_id)))
        if as_json:
            screen.emit(gone.model_dump(mode="json", by_alias=True))
        else:
            screen.show(f"Deleted {gone.finger_session_id}.")

    run(ctx, screen, body)


def _change(ctx: typer.Context, session_id: str, status: Settable, *, as_json: bool) -> None:
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.sessions import CHANGE_SESSION, SessionChange

        request = SessionChange(session_id=await resolve_session(control, session_id), status=status)
        changed = await control.call(CHANGE_SESSION, request)
        if as_json:
            screen.emit(changed.model_dump(mode="json", by_alias=True))
        else:
            screen.show(f"{changed.finger_session_id} is {changed.status}.")

    run(ctx, screen, body)

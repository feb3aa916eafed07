"""``sublet replay``: whether what was decided in a session is decided the same way again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit
from sublet.cli.options.sessions import LAST, resolve_session
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import run
from sublet.cli.rendering.screen import Screen
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ids import SESSION_ID

if TYPE_CHECKING:
    from sublet.daemon.control.client import ControlClient as Control


def replay(
    ctx: typer.Context,
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Its id; or last.", show_default=False)],
    with_current: Annotated[
        bool,
        typer.Option("--with-current", help="Decide by the rules of now, not by those of then.", show_default=False),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Decide again what was decided in a session, and compare.

    Routes, policy, chains, and answers held against their schema; of failures, their class. No agent is asked and
    nothing is changed. Exits with 0 only where all of it is the same.

    With --with-current, what a change of the policy would have changed.
    """
    screen = Screen(as_json=as_json)
    equal = False

    async def body(control: Control) -> None:
        nonlocal equal
        try:
            session_id = await resolve_session(control, session)
        except SubletError as error:
            # What happened in a session that is deleted is still recorded.
            if error.code is not LocalCode.NOT_FOUND or not SESSION_ID.fullmatch(session) or session == LAST:
                raise
            session_id = session
        from sublet.daemon.api.replays import REPLAY, ReplayRequest

        found = await control.call(REPLAY, ReplayRequest(session_id=session_id, current=with_current))
        equal = found.equal
        if as_json:
            screen.emit(found.model_dump(mode="json"))
            return
        from sublet.cli.rendering.replay import step_lines, summary

        for one in found.steps:
            screen.show(*step_lines(one))
        screen.show(summary(found))

    run(ctx, screen, body)
    if not equal:
        raise typer.Exit(Exit.ERROR)

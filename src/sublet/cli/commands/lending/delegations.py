"""Commands about existing delegations: ls, work, output, cancel."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit, exit_for_view
from sublet.cli.options.delegations import IdArgument, resolve
from sublet.cli.options.values import JsonFlag
from sublet.cli.reaching.connection import either_of, run, view_of
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.daemon.api.delegation_views import DelegationView
    from sublet.daemon.control.client import ControlClient as Control

MAX_LISTED = 50
MAX_LISTED_ALL = 500
MAX_OUTPUT_CHARS = 1_000_000
"""Of a delegation's output, ``--json`` carries the last so many characters."""


def ls(
    ctx: typer.Context,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also those that are over.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the delegations under way; with --all, all that are kept."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.delegation_fields import ListNewest
        from sublet.daemon.api.delegations import LIST_DELEGATIONS

        asked = ListNewest(limit=MAX_LISTED_ALL if all_ else MAX_LISTED, active=not all_)
        views = await control.call(LIST_DELEGATIONS, asked)
        if as_json:
            screen.emit({"delegations": [view.model_dump(mode="json") for view in views]})
        elif views:
            from sublet.cli.rendering.delegations import listing

            screen.show(listing(views, datetime.now(UTC)))
        else:
            screen.note("No delegations yet." if all_ else "Nothing under way; `sublet ls --all` shows what is over.")

    run(ctx, screen, body)


def work(
    ctx: typer.Context,
    all_: Annotated[bool, typer.Option("--all", "-a", help="Also what is over.", show_default=False)] = False,
    as_json: JsonFlag = False,
) -> None:
    """List what this machine does for others, or has done (--all)."""
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.daemon.api.assignments import LIST_ASSIGNMENTS
        from sublet.daemon.api.delegation_fields import ListNewest

        asked = ListNewest(limit=MAX_LISTED_ALL if all_ else MAX_LISTED, active=not all_)
        views = await control.call(LIST_ASSIGNMENTS, asked)
        if as_json:
            screen.emit({"assignments": [view.model_dump(mode="json") for view in views]})
        elif views:
            from sublet.cli.rendering.delegations import work_listing

            screen.show(work_listing(views, datetime.now(UTC)))
        else:
            screen.note(
                "No work was done for others yet."
                if all_
                else "No work for others is under way; `sublet work --all` shows what is over."
            )

    run(ctx, screen, body)


def output(
    ctx: typer.Context,
    delegation_id: IdArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go along until the end; Ctrl-C leaves it.", show_default=False)
    ] = False,
    cursor: Annotated[
        int, typer.Option(metavar="N", min=0, help="Only what came after event N: `cursor` of an earlier --json.")
    ] = 0,
    as_json: JsonFlag = False,
) -> None:
    """Show what a delegation printed, and how it stands or ended.

    Work that is done here for others (`sublet work`) is shown alike. Without --follow the exit status tells whether
    it could be read; with it, how the work ended.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> Exit | None:
        from sublet.daemon.api.assignments import AssignmentView

        found = await resolve(control, delegation_id, work=True)
        view = await either_of(control, found)
        if isinstance(view, AssignmentView):
            from sublet.cli.reaching.work import show_output

            return await show_output(control, view, screen, follow=follow, cursor=cursor)
        if as_json:
            return await _output_json(control, found, screen, follow=follow, cursor=cursor)
        from sublet.cli.reaching.follow import follow as go_along
        from sublet.cli.reaching.follow import read_output
        from sublet.cli.rendering.delegations import summary
        from sublet.cli.rendering.live import OutputLines
        from sublet.cli.rendering.review import review_steps

        if follow:
            from sublet.cli.rendering.live import plain

            with plain(view, screen) as follower:
                view = await go_along(control, found, follower, cursor=cursor)
            has_shown = follower.has_shown
        else:
            lines = OutputLines()
            async for event in read_output(control, found, cursor=cursor):
                for line in lines.feed(event):
                    _print_line(line, view, screen)
            for line in lines.rest():
                _print_line(line, view, screen)
            has_shown = lines.has_all_of
        screen.show(summary(view, screen.symbols, has_shown))
        for step in review_steps(view):
            screen.note(f"  {step}")
        return exit_for_view(view) if follow else None

    run(ctx, screen, body)


def cancel(ctx: typer.Context, delegation_id: IdArgument, as_json: JsonFlag = False) -> None:
    """Stop a delegation: its access is cut at once.

    Of a panel it stops all members. It stops work that is done here for others as well (`sublet work`), and its lender
    is told. Cancelling what is over is no error, and says that it was.
    """
    screen = Screen(as_json=as_json)

    async def body(control: Control) -> None:
        from sublet.cli.options.panels import panel_of
        from sublet.daemon.api.assignments import AssignmentView
        from sublet.daemon.api.delegation_fields import OneDelegation
        from sublet.daemon.api.delegations import CANCEL_DELEGATION

        if (panel := await panel_of(control, delegation_id)) is not None:
            from sublet.cli.reaching.panels import cancel_panel

            await cancel_panel(control, screen, panel)
            return
        asked = OneDelegation(delegation_id=await resolve(control, delegation_id, work=True))
        before = await either_of(control, asked.delegation_id)
        if isinstance(before, AssignmentView):
            from sublet.cli.reaching.work import stop

            await stop(control, before, screen)
            return
        view = await control.call(CANCEL_DELEGATION, asked)
        if as_json:
            screen.emit(view.model_dump(mode="json"))
            return
        from sublet.cli.reaching.follow import over
        from sublet.cli.rendering.delegations import headline

        screen.show(headline(view, screen.symbols))
        if over(before):
            screen.note(f"It was over already ({before.state}), so nothing was stopped.")

    run(ctx, screen, body)


async def _output_json(control: Control, found: str, screen: Screen, *, follow: bool, cursor: int) -> Exit | None:
    from sublet.cli.reaching.follow import Unseen, read_output
    from sublet.cli.reaching.follow import follow as go_along
    from sublet.protocol.events import EventKind

    view = await view_of(control, found)
    if follow:
        view = await go_along(control, found, Unseen(), cursor=cursor)
    pieces: list[dict[str, object]] = []
    held = 0
    left_out = False
    async for event in read_output(control, found, cursor=cursor):
        if event.kind is not EventKind.DELEGATION_OUTPUT:
            continue
        pieces.append({"seq": event.seq, "at": event.at, **event.data})
        held += _length(pieces[-1])
        while held > MAX_OUTPUT_CHARS and len(pieces) > 1:
            held -= _length(pieces.pop(0))
            left_out = True
    screen.emit({**view.model_dump(mode="json"), "output": pieces, "output_truncated": left_out})
    return exit_for_view(view) if follow else None


def _length(piece: dict[str, object]) -> int:
    return len(str(piece.get("text", "")))


def _print_line(line: str, view: DelegationView, screen: Screen) -> None:
    from sublet.cli.rendering.columns import Quoted

    screen.out.print(Quoted(line, f"{view.peer} {screen.symbols.bar} "))

"""``sublet attach``: a delegation's log as it comes, with a line below that says how it stands."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublet.cli.errors import Exit, exit_for_view
from sublet.cli.options.completion import complete_delegation
from sublet.cli.options.delegations import resolve
from sublet.cli.options.panels import panel_of
from sublet.cli.options.values import JsonFlag, typed
from sublet.cli.reaching.connection import either_of, run
from sublet.cli.rendering.screen import Screen

if TYPE_CHECKING:
    from sublet.cli.rendering.live import PlainView
    from sublet.daemon.api.delegation_views import DelegationView
    from sublet.daemon.control.client import ControlClient as Control
    from sublet.protocol.events import Event

DEFAULT_LINES = 20
MAX_LINES = 10_000
STATUS_SECONDS = 10.0
"""How often the status line is printed anew where there is no terminal to redraw it on."""


def attach(
    ctx: typer.Context,
    delegation_id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="Delegation id, the beginning of one, or `last`; a panel; or the room of a file.",
            autocompletion=complete_delegation,
            show_default=False,
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="For a room instead: a file to send there.", show_default=False),
    ] = None,
    get: Annotated[
        str | None,
        typer.Option("--get", metavar="REF", help="Of a room: fetch the file of this message.", show_default=False),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", metavar="PATH", help="Write it there, - for stdout.", show_default=False),
    ] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=0, max=MAX_LINES, help="Begin with the last N lines.")
    ] = DEFAULT_LINES,
    as_json: JsonFlag = False,
) -> None:
    """Watch a delegation: its log as it comes, and how it stands.

    A line below tells what time went by and is left, and how many bytes and files it touched. Ctrl-C detaches, and the
    work goes on; it never cancels. Exit status as of `delegate`. Work that is done here for others is watched alike.

    With FILE it sends that file to the room of that name, with --get it fetches one from there; --json is for these.
    """
    if output is not None and get is None:
        raise typer.BadParameter("--output goes with --get")
    if file is not None or get is not None:
        if typed(ctx, "lines"):
            raise typer.BadParameter("--lines is of a delegation, not of a room's file")
        _of_room(ctx, delegation_id, file, get, output, as_json)
        return
    if as_json:
        raise typer.BadParameter("a delegation is watched by people; for scripts: sublet output ID --follow --json")
    screen = Screen()

    async def body(control: Control) -> Exit:
        from sublet.cli.reaching.follow import interrupts, until_interrupted
        from sublet.cli.rendering.delegations import summary
        from sublet.daemon.api.assignments import AssignmentView

        if (panel := await panel_of(control, delegation_id)) is not None:
            from sublet.cli.reaching.panels import attach_panel

            return await attach_panel(control, screen, panel)
        found = await resolve(control, delegation_id, work=True)
        view = await either_of(control, found)
        if isinstance(view, AssignmentView):
            from sublet.cli.reaching.work import attach_to

            return await attach_to(control, view, screen, lines)
        cursor, begin = await _last(control, found, lines)
        with interrupts() as pressed, _shown(view, screen, begin) as follower:
            ended = await until_interrupted(control, found, follower, pressed, cursor=cursor)
        if ended is None:
            screen.note(f"Detached; the work goes on. Back to it:  sublet attach {found}")
            return Exit.INTERRUPTED
        screen.show(summary(ended, screen.symbols, follower.has_shown))
        return exit_for_view(ended)

    run(ctx, screen, body)


def _of_room(
    ctx: typer.Context, room: str, file: Path | None, get: str | None, output: str | None, as_json: bool
) -> None:
    from sublet.cli.options.room_files import STDOUT, download, upload

    screen = Screen(as_json=as_json)
    if file is not None and get is not None:
        raise typer.BadParameter("give a file to send, or --get")
    if as_json and output == STDOUT:
        raise typer.BadParameter("stdout is for the file, or for --json")

    async def body(control: Control) -> None:
        from sublet.cli.options.rooms import resolve_ref, resolve_room
        from sublet.daemon.api.room_fields import OneMessage
        from sublet.daemon.api.room_marks import GET_MESSAGE
        from sublet.daemon.api.room_messages import SEND_MESSAGE, SendMessage

        room_id = await resolve_room(control, room)
        if file is not None:
            kept = await upload(control, room_id, file)
            name = kept.filename
            request = SendMessage(room_id=room_id, body=name, media=kept.blob_hash, filename=name)
            sent = await control.call(SEND_MESSAGE, request)
            if as_json:
                screen.emit(sent.model_dump(mode="json"))
            else:
                screen.out.print(sent.ref_id)
            return
        ref_id = await resolve_ref(control, room_id, str(get))
        one = await control.call(GET_MESSAGE, OneMessage(room_id=room_id, ref_id=ref_id))
        path = await download(control, room_id, one, output)
        if as_json:
            screen.emit({"room_id": room_id, "ref_id": one.ref_id, "path": path})
        elif path != STDOUT:
            screen.show(path)

    run(ctx, screen, body)


async def _last(control: Control, delegation_id: str, lines: int) -> tuple[int, list[Event]]:
    """Return the newest event's number, and the events that hold the last ``lines`` lines until then."""
    from sublet.cli.reaching.follow import read_output

    kept: deque[tuple[Event, int]] = deque()
    cursor = count = 0
    async for event in read_output(control, delegation_id):
        cursor = event.seq
        text = event.data.get("text")
        broken = text.count("\n") if isinstance(text, str) else 0
        kept.append((event, broken))
        count += broken
        while kept and count - kept[0][1] >= lines:
            count -= kept.popleft()[1]
    return cursor, [event for event, _ in kept]


@contextmanager
def _shown(view: DelegationView, screen: Screen, begin: list[Event]) -> Iterator[PlainView]:
    from sublet.cli.rendering.live import LiveLog, PlainView

    if screen.err.is_terminal:
        log = LiveLog(view, screen)
        with log.drawn():
            for event in begin:
                log.event(event)
            yield log
            log.finish()
        return

    class Telling(PlainView):
        """Prints the status line now and then."""

        _told_at = time.monotonic()

        def view(self, view: DelegationView) -> None:
            """Take the delegation as it is now."""
            super().view(view)
            if time.monotonic() - self._told_at >= STATUS_SECONDS:
                self._told_at = time.monotonic()
                self.say_status()

    plain = Telling(view, screen)
    plain.say_status()
    for event in begin:
        plain.event(event)
    yield plain
    plain.finish()

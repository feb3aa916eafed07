"""Work that is done here for others, on the command line of the machine that does it: its output, and its end."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from sublet.cli.errors import Exit
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import ASSIGNMENT_TABLE, is_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from sublet.cli.rendering.screen import Screen
    from sublet.daemon.api.assignments import AssignmentView
    from sublet.daemon.control.client import ControlClient as Control
    from sublet.protocol.events import Event

POLL_SECONDS: Final = 2.0
"""How long one poll waits for output; after that the state is read anew."""
PAGE: Final = 200
MAX_KEPT_CHARS: Final = 1 << 20
"""Of the output that ``--json`` carries; the newest of it."""


async def stop(control: Control, before: AssignmentView, screen: Screen) -> None:
    """Stop the work, and say how it stands."""
    from sublet.daemon.api.assignments import CANCEL_ASSIGNMENT
    from sublet.daemon.api.delegation_fields import OneDelegation

    view = await control.call(CANCEL_ASSIGNMENT, OneDelegation(delegation_id=before.delegation_id))
    if screen.as_json:
        screen.emit(view.model_dump(mode="json"))
        return
    _show(view, screen)
    if _over(before):
        screen.note(f"It was over already ({before.state}), so nothing was stopped.")


async def show_output(
    control: Control, view: AssignmentView, screen: Screen, *, follow: bool, cursor: int
) -> Exit | None:
    """Show what the agent has printed, and with ``follow`` what it prints until the end."""
    if not screen.as_json:
        printing = _Printing(view, screen)
        view = await _told(control, view, printing.event, cursor=cursor, follow=follow)
        printing.finish()
        _show(view, screen)
        return _exit_for(view) if follow else None
    pieces: list[dict[str, object]] = []
    held, left_out = 0, False

    def keep(event: Event) -> None:
        nonlocal held, left_out
        pieces.append({"seq": event.seq, "at": event.at, **event.data})
        held += len(str(event.data.get("text", "")))
        while held > MAX_KEPT_CHARS and len(pieces) > 1:
            held -= len(str(pieces.pop(0).get("text", "")))
            left_out = True

    view = await _told(control, view, keep, cursor=cursor, follow=follow)
    screen.emit({**view.model_dump(mode="json"), "output": pieces, "output_truncated": left_out})
    return _exit_for(view) if follow else None


async def attach_to(control: Control, view: AssignmentView, screen: Screen, lines: int) -> Exit:
    """Show the last ``lines`` lines and what comes, until the end or Ctrl-C, which ends nothing."""
    from sublet.cli.reaching.follow import interrupts, read_output
    from sublet.daemon.tasks.failures import sole_failure

    kept: deque[Event] = deque()
    cursor = 0
    async for event in read_output(control, view.delegation_id):
        cursor = event.seq
        kept.append(event)
        while len(kept) > 1 and sum(_breaks(one) for one in kept) - _breaks(kept[0]) >= lines:
            kept.popleft()
    printing = _Printing(view, screen)
    for event in kept if lines else ():
        printing.event(event)
    with interrupts() as pressed, sole_failure(SubletError):
        async with asyncio.TaskGroup() as group:
            following = group.create_task(_told(control, view, printing.event, cursor=cursor, follow=True))
            stopped = group.create_task(pressed.wait())
            await asyncio.wait((following, stopped), return_when=asyncio.FIRST_COMPLETED)
            following.cancel()
            stopped.cancel()
    printing.finish()
    if following.cancelled():
        screen.note(f"Detached; the work goes on. Stop it:  sublet cancel {view.delegation_id}")
        return Exit.INTERRUPTED
    ended = following.result()
    _show(ended, screen)
    return _exit_for(ended)


async def _told(
    control: Control,
    view: AssignmentView,
    take: Callable[[Event], None],
    *,
    cursor: int,
    follow: bool,
) -> AssignmentView:
    """Give every piece of output after ``cursor`` to ``take``, until the end where that is asked for."""
    from sublet.daemon.api.assignments import GET_ASSIGNMENT
    from sublet.daemon.api.delegation_fields import OneDelegation
    from sublet.daemon.api.events import READ_EVENTS, ReadEvents
    from sublet.protocol.events import EventKind

    one = OneDelegation(delegation_id=view.delegation_id)
    wait, last = 0.0, not follow
    while True:
        asked = ReadEvents(cursor=cursor, delegation_id=view.delegation_id, timeout=wait, limit=PAGE)
        page = await control.call(READ_EVENTS, asked)
        for event in page.events:
            if event.kind is EventKind.DELEGATION_OUTPUT:
                take(event)
        cursor = page.cursor
        if last and not page.events:
            return await control.call(GET_ASSIGNMENT, one)
        if not last:
            view = await control.call(GET_ASSIGNMENT, one)
            # After the end only what is there already is still to be shown.
            last, wait = _over(view), 0.0 if _over(view) else POLL_SECONDS


class _Printing:
    """Prints output line by line, each marked as the agent's."""

    def __init__(self, view: AssignmentView, screen: Screen) -> None:
        from sublet.cli.rendering.live import OutputLines

        self._lines = OutputLines()
        self._mark = f"{view.agent} {screen.symbols.bar} "
        self._out = screen.out

    def event(self, event: Event) -> None:
        """Print the lines that ``event`` completes."""
        self._print(self._lines.feed(event))

    def finish(self) -> None:
        """Print what never got its newline."""
        self._print(self._lines.rest())

    def _print(self, lines: list[str]) -> None:
        from sublet.cli.rendering.columns import Quoted

        for line in lines:
            self._out.print(Quoted(line, self._mark))


def _show(view: AssignmentView, screen: Screen) -> None:
    from datetime import UTC, datetime

    from sublet.cli.rendering.delegations import work_listing

    screen.show(work_listing([view], datetime.now(UTC)))


def _breaks(event: Event) -> int:
    text = event.data.get("text")
    return text.count("\n") if isinstance(text, str) else 0


def _over(view: AssignmentView) -> bool:
    return is_terminal(ASSIGNMENT_TABLE, view.state)


def _exit_for(view: AssignmentView) -> Exit:
    if view.error is None:
        return Exit.OK
    return Exit.CANCELLED if view.error.code == "CANCELLED" else Exit.ERROR

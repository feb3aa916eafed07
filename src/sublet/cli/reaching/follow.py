"""Going along with a delegation: events as they come, and what to do on Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, Protocol

from sublet.cli.reaching.connection import view_of
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.lifecycle import DELEGATION_TABLE, is_terminal

if TYPE_CHECKING:
    from sublet.daemon.api.delegation_views import DelegationView
    from sublet.daemon.api.events import EventPage
    from sublet.daemon.control.client import ControlClient as Control
    from sublet.protocol.events import Event

POLL_SECONDS = 2.0
"""How long one poll waits for an event; after that the byte counts are read anew."""
SETTLE_SECONDS = 15.0
"""How long after the end the audit may take to appear."""
OUTAGE_SECONDS = 20.0
"""How long the daemon may be away (a restart) before following is given up."""
RETRY_SECONDS = 0.25
PAGE = 200

Choice = Literal["detach", "cancel", "continue"]


class Follower(Protocol):
    """Whoever shows a delegation while it runs."""

    def event(self, event: Event) -> None:
        """Take the next event."""

    def view(self, view: DelegationView) -> None:
        """Take the delegation as it is now."""

    def has_shown(self, words: str) -> bool:
        """Tell whether whoever reads the end has read all of ``words`` already."""


class Unseen:
    """Shows nothing: scripts read the end only."""

    def event(self, event: Event) -> None:
        """Take the next event."""

    def view(self, view: DelegationView) -> None:
        """Take the delegation as it is now."""

    def has_shown(self, words: str) -> bool:
        """Tell whether whoever reads the end has read all of ``words`` already."""
        return False


async def follow(control: Control, delegation_id: str, follower: Follower, *, cursor: int = 0) -> DelegationView:
    """Report events and states to ``follower`` until the end, and return the view with its audit.

    Raises:
        SubletError: ``DAEMON_UNAVAILABLE`` where the daemon stays away, or what the daemon answers.
    """
    from sublet.daemon.api.delegations import WAIT_FOR_END, WaitForEnd

    away_since: float | None = None
    wait, ended = 0.0, False
    while True:
        try:
            page = await _page(control, delegation_id, cursor, wait)
            view = await view_of(control, delegation_id)
        except SubletError as error:
            if error.code != LocalCode.DAEMON_UNAVAILABLE:
                raise
            away_since = away_since or time.monotonic()
            if time.monotonic() - away_since > OUTAGE_SECONDS:
                raise _lost(delegation_id, error) from None
            await asyncio.sleep(RETRY_SECONDS)
            continue
        away_since = None
        cursor = page.cursor
        for event in page.events:
            follower.event(event)
        follower.view(view)
        if ended and not page.events:
            settled = await control.call(WAIT_FOR_END, WaitForEnd(delegation_id=delegation_id, timeout=SETTLE_SECONDS))
            async for event in read_output(control, delegation_id, cursor=cursor):
                follower.event(event)
            return settled
        ended = over(view)
        wait = 0.0 if ended else POLL_SECONDS  # after the end only what is there already is still to be shown


async def until_interrupted(
    control: Control, delegation_id: str, follower: Follower, pressed: asyncio.Event, *, cursor: int = 0
) -> DelegationView | None:
    """Follow the delegation to its end; None where Ctrl-C came first.

    Raises:
        SubletError: as ``follow``.
    """
    from sublet.daemon.tasks.failures import sole_failure

    with sole_failure(SubletError):
        async with asyncio.TaskGroup() as group:
            following = group.create_task(follow(control, delegation_id, follower, cursor=cursor))
            interrupted = group.create_task(pressed.wait())
            await asyncio.wait((following, interrupted), return_when=asyncio.FIRST_COMPLETED)
            following.cancel()
            interrupted.cancel()
    return None if following.cancelled() else following.result()


async def read_output(control: Control, delegation_id: str, *, cursor: int = 0) -> AsyncIterator[Event]:
    """Yield the delegation's events after ``cursor`` that exist now."""
    while True:
        page = await _page(control, delegation_id, cursor)
        for event in page.events:
            yield event
        if not page.events or page.cursor <= cursor:
            return
        cursor = page.cursor


async def _page(control: Control, delegation_id: str, cursor: int, timeout: float = 0) -> EventPage:
    from sublet.daemon.api.events import READ_EVENTS, ReadEvents

    asked = ReadEvents(cursor=cursor, delegation_id=delegation_id, timeout=timeout, limit=PAGE)
    return await control.call(READ_EVENTS, asked)


def over(view: DelegationView) -> bool:
    """Tell whether the delegation has reached one of its ends."""
    return is_terminal(DELEGATION_TABLE, view.state)


@contextmanager
def interrupts() -> Iterator[asyncio.Event]:
    """Turn Ctrl-C into an event for as long as the context lasts."""
    loop = asyncio.get_running_loop()
    pressed = asyncio.Event()
    loop.add_signal_handler(signal.SIGINT, pressed.set)
    try:
        yield pressed
    finally:
        loop.remove_signal_handler(signal.SIGINT)


async def ask_choice(pressed: asyncio.Event) -> Choice:
    """Ask at the terminal what Ctrl-C meant; without one, or on a second Ctrl-C, detach: nothing is lost by it."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return "detach"
    sys.stderr.write("\nThe work goes on. Enter d to detach, c to cancel it, nothing to keep watching: ")
    sys.stderr.flush()
    pressed.clear()
    answer = await _line_or(pressed)
    if answer is None:
        sys.stderr.write("\n")
        return "detach"
    match answer.strip().lower():
        case "d" | "detach":
            return "detach"
        case "c" | "cancel":
            return "cancel"
        case _:
            return "continue"


async def _line_or(pressed: asyncio.Event) -> str | None:
    """Return a line from stdin, or None where ``pressed`` comes first or stdin ends."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str | None] = loop.create_future()

    def readable() -> None:
        loop.remove_reader(stdin)
        text = os.read(stdin, 4096).decode(errors="replace")
        line.set_result(text or None)

    stdin = sys.stdin.fileno()
    loop.add_reader(stdin, readable)
    try:
        async with asyncio.TaskGroup() as group:
            interrupted = group.create_task(pressed.wait())
            answered = group.create_task(_result(line))
            await asyncio.wait((interrupted, answered), return_when=asyncio.FIRST_COMPLETED)
            result = answered.result() if answered.done() else None
            interrupted.cancel()
            answered.cancel()
        return result
    finally:
        loop.remove_reader(stdin)


async def _result(line: asyncio.Future[str | None]) -> str | None:
    return await line


def _lost(delegation_id: str, error: SubletError) -> SubletError:
    return SubletError(
        LocalCode.DAEMON_UNAVAILABLE,
        f"the daemon went away while {delegation_id} was running: {error.message}",
        f"It takes the work up again when it starts: `sublet up --detach`, then `sublet output {delegation_id}`.",
    )

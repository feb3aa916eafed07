"""What one tool call has at hand: the daemon, who calls, how long it may take, and a way to report progress."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from sublet.daemon.api.base import MAX_WAIT_SECONDS
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import GET_DELEGATION, WAIT_FOR_END, WaitForEnd
from sublet.daemon.api.events import READ_EVENTS, ReadEvents
from sublet.daemon.operations.calling import Calls
from sublet.policy.decision import Subject
from sublet.protocol.events import Event, EventKind
from sublet.protocol.lifecycle import DELEGATION_TABLE, is_terminal
from sublet.protocol.text import clean_line

ANSWER_SECONDS = 48.0
"""Hosts give up at 60 s, and DESIGN 5 promises an answer in under 50 s, come what may."""
PROGRESS_SECONDS = 5.0
"""Between two progress reports, and between two looks at a lease that nobody reports on."""
MAX_PROGRESS_CHARS = 200

Progress = Callable[[int, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call.

    Args:
        operations: what the daemon can be asked, as ``caller``.
        caller: the MCP host, with its roots.
        report: sends progress (a growing count and a line of text); does nothing if the host did not ask for it.
        deadline: loop time at which the answer must be on its way.
        withdrawn: tells whether the host has cancelled this very call; it has not where it is only gone.
    """

    operations: Calls
    caller: Subject
    report: Progress
    deadline: float
    withdrawn: Callable[[], bool] = lambda: False

    async def follow(self, view: DelegationView, seconds: float, *, since: int, until_end: bool) -> DelegationView:
        """Wait for news of ``view`` and return it as it is then.

        Args:
            view: the delegation as it was.
            seconds: longest wait; never beyond ``MAX_WAIT_SECONDS`` or the call's deadline.
            since: events after this one are news.
            until_end: whether only the end counts.
        """
        # Half a second is for reading the page that follows the wait.
        end = min(anyio.current_time() + min(seconds, MAX_WAIT_SECONDS), self.deadline - 0.5)
        cursor, reports = since, 0
        while not ended(view) and (left := end - anyio.current_time()) > 0:
            page = await self.operations.call(
                READ_EVENTS,
                ReadEvents(cursor=cursor, delegation_id=view.delegation_id, timeout=min(left, PROGRESS_SECONDS)),
            )
            view = await self.view(view.delegation_id)
            if page.events and not until_end:
                break
            cursor = page.cursor
            reports += 1
            await self.report(reports, _progress_line(view, page.events))
        if until_end and ended(view) and (left := end - anyio.current_time()) > 0:
            # The end is told as soon as access is cut; what it changed and whether that can be undone, a little later.
            view = await self.operations.call(WAIT_FOR_END, WaitForEnd(delegation_id=view.delegation_id, timeout=left))
        return view

    async def view(self, delegation_id: str) -> DelegationView:
        """Return a delegation as it is now."""
        return await self.operations.call(GET_DELEGATION, OneDelegation(delegation_id=delegation_id))


def ended(view: DelegationView) -> bool:
    """Tell whether the delegation is over."""
    return is_terminal(DELEGATION_TABLE, view.state)


def _progress_line(view: DelegationView, events: list[Event]) -> str:
    for event in reversed(events):
        text = event.data.get("text")
        if event.kind is EventKind.DELEGATION_OUTPUT and isinstance(text, str) and text.strip():
            last = text.strip().rpartition("\n")[2]
            return f"{view.state}; from {view.peer} (untrusted): {clean_line(last, MAX_PROGRESS_CHARS)}"
    return f"{view.state}" + (f"; {clean_line(view.condition.detail, MAX_PROGRESS_CHARS)}" if view.condition else "")

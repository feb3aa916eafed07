"""Events as server-sent events, and waits that end when the daemon stops: for every face that streams over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

import anyio
from starlette.responses import StreamingResponse

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.daemon_api import DaemonApi
from sublet.daemon.api.models import EventPage
from sublet.policy.model import Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventFilter

HEARTBEAT_SECONDS = 15.0
MAX_CURSOR_DIGITS = 18

T = TypeVar("T")


class EventStreams:
    """Makes streams of events, and ends them and other waits at the daemon's stop, so that it needs no patience."""

    def __init__(self, api: DaemonApi) -> None:
        self._api = api
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End everything that waits; later requests that would wait are refused."""
        self._stopping.set()

    async def page(
        self, cursor: int, only: EventFilter, caller: Subject, *, timeout: float = 0, limit: int = MAX_PAGE
    ) -> EventPage:
        """Return events after ``cursor``, waiting at most ``timeout`` seconds for the first.

        Raises:
            SubletError: what policy says; ``UNAVAILABLE`` where the daemon stops meanwhile.
        """
        return await self.unless_stopping(
            lambda: self._api.events_since(
                cursor,
                caller,
                delegation_id=only.delegation_id,
                session_id=only.session_id,
                kind=only.kind,
                timeout=timeout,
                limit=limit,
            )
        )

    async def stream(
        self,
        cursor: int,
        only: EventFilter,
        caller: Subject,
        *,
        last_event_id: str = "",
        go_on: Callable[[], bool] = lambda: True,
    ) -> StreamingResponse:
        """Return events after ``cursor`` as they come, until the reader goes away or the daemon stops.

        Args:
            cursor: ``seq`` of the last event that the reader has.
            only: which events.
            caller: for policy.
            last_event_id: what a reader sends that comes back, in place of ``cursor``.
            go_on: tells before each page whether the reader may have more; asked every ``HEARTBEAT_SECONDS`` at least.

        Raises:
            SubletError: what policy says, before the answer has begun, so that a refusal is still an HTTP error.
        """
        if last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) <= MAX_CURSOR_DIGITS:
            cursor = int(last_event_id)
        first = await self.page(cursor, only, caller)
        return StreamingResponse(
            self._lines(first, only, caller, go_on),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store"},
        )

    async def _lines(
        self, page: EventPage, only: EventFilter, caller: Subject, go_on: Callable[[], bool]
    ) -> AsyncIterator[str]:
        try:
            while go_on():
                for event in page.events:
                    # ASCII, since readers take U+2028 and its like for the end of a line.
                    yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json(ensure_ascii=True)}\n\n"
                if not page.events:
                    yield ": alive\n\n"
                page = await self.page(page.cursor, only, caller, timeout=HEARTBEAT_SECONDS)
        except SubletError as error:
            yield f"event: error\ndata: {json.dumps({'error': error.as_json()})}\n\n"

    async def unless_stopping(self, waiting: Callable[[], Awaitable[T]]) -> T:
        """Return what ``waiting()`` returns, or give up at once when the daemon stops.

        Raises:
            SubletError: ``UNAVAILABLE`` then, or what ``waiting()`` raises.
        """
        answers: list[T] = []
        refusals: list[SubletError] = []

        async def wait(scope: anyio.CancelScope) -> None:
            try:
                answers.append(await waiting())
            except SubletError as error:
                # Carried by hand, since a task group would wrap it.
                refusals.append(error)
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(wait, group.cancel_scope)
            await self._stopping.wait()
            group.cancel_scope.cancel()
        if refusals:
            raise refusals[0]
        if not answers:
            raise SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping", "Start it again with `sublet up`.")
        return answers[0]

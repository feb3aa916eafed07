"""What has happened, for whoever asks for it or waits for it; on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Protocol, TypedDict

import anyio

from sublet.messaging.delivery.loops import LoopParts, Loops
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.events.cursors import Cursors
from sublet.messaging.ports.rows import EventRow
from sublet.messaging.running.owner import Owner
from sublet.messaging.schema.fields import Fields
from sublet.messaging.watching.watchers import Seen, Wanted, Watchers, WatchParts
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId

MAX_WAIT_SECONDS: Final = 60.0


class NewsParts(WatchParts, LoopParts, Protocol):
    """The parts of the engine for telling what is new."""

    @property
    def cursors(self) -> Cursors: ...


class EventsFound(TypedDict):
    """What has happened, in order, the cursor after it, and whether there was more that is not kept any more."""

    events: list[Fields]
    cursor: int
    missed: bool


class News:
    """Events by cursor.

    Args:
        call: runs something with the engine.
        owner: runs it without anybody who waits for it.
        watchers: who waits.
        loops: tells what wakes agents no more; None where everything does.
    """

    def __init__(self, call: CallEngine, owner: Owner, watchers: Watchers, loops: Loops | None) -> None:
        self._call = call
        self._owner = owner
        self._watchers = watchers
        self._loops = loops

    async def watch(
        self, entity: EntityId, since: int | None, wait_seconds: float, room_id: RoomId | None = None
    ) -> EventsFound:
        """Return events after a cursor that an entity may see; wait for one where there is none.

        Args:
            entity: one of ours.
            since: a cursor, 0 for all that are kept; None for what the entity has not taken up yet (``take_up``),
                without its own doings.
            wait_seconds: how long to wait, at most ``MAX_WAIT_SECONDS``.
            room_id: of one room only.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: the cursor is of no event that there has been.
        """
        waiter: asyncio.Future[Seen] | None = None
        if wait_seconds > 0:
            waiter = asyncio.get_running_loop().create_future()

        def look(engine: NewsParts) -> tuple[Seen, bool]:
            if since is not None and since > engine.events.cursor:
                what = "there is no such event yet"
                raise SubletError(LocalCode.INVALID_ARGUMENT, what, "Take a cursor from an answer, or leave it out.")
            start = engine.cursors.start(entity, room_id) if since is None else since
            wanted = self._wanted(engine, entity, everything=since is not None)
            return self._watchers.look(engine, entity, start, room_id, waiter, wanted), engine.events.missed(start)

        (found, cursor), missed = await self._call(look)
        if waiter is not None and not found:
            found, cursor = await self._wait(waiter, cursor, min(wait_seconds, MAX_WAIT_SECONDS))
        events: list[Fields] = [
            {"cursor": row.cursor, "kind": row.kind, "room_id": row.room_id, **row.data} for row in found
        ]
        return {"events": events, "cursor": cursor, "missed": missed}

    def _wanted(self, engine: NewsParts, entity: EntityId, *, everything: bool) -> Wanted | None:
        """Return what tells which events somebody gets; None for all."""
        tests: list[Callable[[EventRow], bool]] = [] if everything else [engine.cursors.news(entity)]
        if self._loops is not None:
            tests.append(self._loops.hears(engine, entity))
        return (lambda row: all(test(row) for test in tests)) if tests else None

    async def _wait(self, waiter: asyncio.Future[Seen], since: int, seconds: float) -> Seen:
        """Wait until there is something for a watcher; whoever gives up is forgotten."""
        dropped: Future[int] = Future()
        with anyio.move_on_after(seconds):
            try:
                return await waiter
            finally:
                if waiter.cancelled():
                    self._owner.call(lambda _: self._watchers.drop(waiter), dropped)
        if not waiter.cancelled():
            return waiter.result()  # it came as the time ran out
        return [], max(since, await asyncio.wrap_future(dropped))

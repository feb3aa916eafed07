"""Who waits for events: told by the engine's thread as soon as one is durable, without asking the database again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from sublet.messaging.events.events import Events
from sublet.messaging.ports.rows import EventRow
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.ezagent.ids import EntityId, RoomId

Seen: TypeAlias = "tuple[list[EventRow], int]"
"""Events that somebody may see, and the cursor after all that were looked at."""
Wanted: TypeAlias = "Callable[[EventRow], bool]"


class WatchParts(Protocol):
    """The parts of the engine for telling who waits."""

    @property
    def events(self) -> Events: ...

    @property
    def rooms(self) -> RoomStates: ...


@dataclass(slots=True)
class _Watcher:
    entity: EntityId
    room_id: RoomId | None
    cursor: int
    wanted: Wanted | None


class Watchers:
    """Whoever waits, each once; used on the engine's thread only.

    Args:
        settle: gives a result to a future of the event loop, from the engine's thread.
    """

    def __init__(self, settle: Callable[[asyncio.Future[Seen], Seen], None]) -> None:
        self._settle = settle
        self._waiting: dict[asyncio.Future[Seen], _Watcher] = {}

    def look(
        self,
        engine: WatchParts,
        entity: EntityId,
        since: int,
        room_id: RoomId | None,
        waiter: asyncio.Future[Seen] | None,
        wanted: Wanted | None = None,
    ) -> Seen:
        """Return events after a cursor that an entity may see; where there is none, ``waiter`` gets those that come.

        Args:
            engine: the engine.
            entity: who looks.
            since: the cursor.
            room_id: of one room only.
            waiter: waits where there is nothing.
            wanted: tells which events of those; None for all.
        """
        while rows := engine.events.since(since):
            since = rows[-1].cursor
            if found := visible(engine, rows, entity, room_id, wanted):
                return found, since
        if waiter is not None:
            self._waiting[waiter] = _Watcher(entity, room_id, since, wanted)
        return [], since

    def drop(self, waiter: asyncio.Future[Seen]) -> int:
        """Let somebody wait no longer, and return up to where there was nothing for them; 0 where there was."""
        watcher = self._waiting.pop(waiter, None)
        return watcher.cursor if watcher is not None else 0

    def told(self, engine: WatchParts, rows: list[EventRow]) -> None:
        """Give events that have just become durable to whoever waits for one of them."""
        for waiter, watcher in list(self._waiting.items()):
            found = visible(engine, rows, watcher.entity, watcher.room_id, watcher.wanted)
            watcher.cursor = max(watcher.cursor, rows[-1].cursor)
            if found:
                del self._waiting[waiter]
                self._settle(waiter, (found, watcher.cursor))


def visible(
    engine: WatchParts, rows: list[EventRow], entity: EntityId, room_id: RoomId | None, wanted: Wanted | None = None
) -> list[EventRow]:
    """Return those of some events that are of rooms that an entity is a member of, or has just left.

    What somebody watches is told to nobody else.
    """
    return [
        row
        for row in rows
        if row.room_id is not None
        and room_id in (None, row.room_id)
        and (wanted is None or wanted(row))
        and row.data.get("watcher") in (None, entity)
        and (engine.rooms.state(row.room_id).role(entity) is not None or row.data.get("entity") == entity)
    ]

"""The stream of events (ezagent 10.3), kept with a cursor, so that a reader who was away misses nothing.

Rules: an event is told once it is durable, in the order in which things happened here; what was mentioned in passing
moves no cursor. Weak: the last ``KEPT_EVENTS`` are kept, and who was away for longer is told that some are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sublet.messaging.ports.rows import EventRow
from sublet.messaging.ports.store import Store
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.ids import RoomId

KEPT_EVENTS: Final = 10_000
MAX_PAGE: Final = 500


class Events:
    """Events in the order in which they happened here.

    Args:
        store: where they are kept.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cursor = store.last_cursor()
        self._durable = self._cursor
        self._new: list[EventRow] = []
        self._passing: list[EventRow] = []
        self.listeners: list[Callable[[list[EventRow]], None]] = []

    @property
    def cursor(self) -> int:
        """Return the cursor of the last event."""
        return self._cursor

    def tell(self, kind: str, room_id: RoomId | None, data: dict[str, JsonValue]) -> None:
        """Add an event; readers see it when it is durable."""
        self._cursor += 1
        self._new.append(EventRow(self._cursor, kind, room_id, data))

    def mention(self, kind: str, room_id: RoomId | None, data: dict[str, JsonValue]) -> None:
        """Add an event that only those hear who wait for one now; it is not kept, and moves no cursor."""
        self._passing.append(EventRow(self._durable, kind, room_id, data))

    def pass_on(self) -> None:
        """Tell the listeners of what was mentioned."""
        passing, self._passing = self._passing, []
        self.publish(passing)

    def write(self) -> list[EventRow]:
        """Keep the new events, inside a transaction, and return them; ``publish`` tells them once that is durable."""
        fresh, self._new = self._new, []
        if fresh:
            self._store.append_events(fresh, KEPT_EVENTS)
        return fresh

    def publish(self, fresh: list[EventRow]) -> None:
        """Tell the listeners of events that are durable."""
        if fresh:
            for listener in self.listeners:
                listener(fresh)

    def settled(self) -> None:
        """Note that all events that were written are durable."""
        self._durable = self._cursor

    def drop(self) -> None:
        """Forget events whose transaction failed."""
        self._new = []
        self._cursor = self._store.last_cursor()

    def since(self, cursor: int, limit: int = MAX_PAGE) -> list[EventRow]:
        """Return kept events after a cursor, at most ``MAX_PAGE``."""
        return self._store.events(cursor, min(limit, MAX_PAGE))

    def missed(self, cursor: int) -> bool:
        """Tell whether events after a cursor are not kept any more."""
        first = self._store.events(0, 1)
        return bool(first) and first[0].cursor > cursor + 1

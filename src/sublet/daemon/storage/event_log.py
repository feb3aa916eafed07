"""The log of events: append in a transaction, read from a cursor, wait for news (SuperAgent 9.1, DESIGN 7)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from sublet.daemon.api.models import MAX_PAGE, EventPage
from sublet.daemon.storage.store import Store
from sublet.daemon.times import rfc3339
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKind

T = TypeVar("T")

KEEP_EVENTS = 200_000
"""The newest stay; a reader that is further behind goes on with the oldest there is."""
PRUNE_EVERY = 1_000
MAX_READERS = 512
"""Long polls and event streams at one time."""


def load_object(text: str) -> dict[str, JsonValue]:
    """Return the JSON object that this module or the journal has written."""
    return cast("dict[str, JsonValue]", json.loads(text))


class Recorder:
    """Adds events inside a transaction of ``EventLog.transact``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.events: list[Event] = []

    def add(self, kind: EventKind, delegation_id: str | None, data: Mapping[str, JsonValue]) -> Event:
        """Add an event; it becomes visible with the transaction."""
        at = rfc3339()
        cursor = self._connection.execute(
            "INSERT INTO events (at, kind, delegation_id, data) VALUES (?, ?, ?, ?)",
            (at, str(kind), delegation_id, json.dumps(data, ensure_ascii=False, separators=(",", ":"))),
        )
        seq = cursor.lastrowid
        assert seq is not None
        if seq % PRUNE_EVERY == 0:
            self._connection.execute("DELETE FROM events WHERE seq <= ?", (seq - KEEP_EVENTS,))
        event = Event(seq=seq, at=at, kind=kind, delegation_id=delegation_id, data=dict(data))
        self.events.append(event)
        return event


class EventLog:
    """Events in the store, and those in this process who wait for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Event, str | None] = {}

    async def transact(self, work: Callable[[sqlite3.Connection, Recorder], T]) -> T:
        """Run ``work`` in one transaction; the events it records are told to all readers once it is on the disk."""

        def run(connection: sqlite3.Connection) -> tuple[T, list[Event]]:
            recorder = Recorder(connection)
            return work(connection, recorder), recorder.events

        result, _ = await self._store.write(run, after=lambda done: self._wake(done[1]))
        return result

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what ``work`` reads; it sees every finished transaction."""
        return await self._store.read(work)

    async def append_event(self, kind: EventKind, delegation_id: str | None, data: Mapping[str, JsonValue]) -> Event:
        """Add an event that goes with no change of a record."""
        return await self.transact(lambda _, events: events.add(kind, delegation_id, data))

    async def newest_event(self, delegation_id: str | None = None) -> int:
        """Return the number of the newest event, of all or of one delegation; 0 where there is none."""

        def work(connection: sqlite3.Connection) -> int:
            if delegation_id is None:
                return _newest(connection)
            query = "SELECT coalesce(max(seq), 0) AS seq FROM events WHERE delegation_id = ?"
            return int(connection.execute(query, (delegation_id,)).fetchone()["seq"])

        return await self._store.read(work)

    async def events_after(self, cursor: int, delegation_id: str | None = None, limit: int = 100) -> EventPage:
        """Return at most ``limit`` events after ``cursor``; the page's cursor is where to go on.

        A cursor from the future, left over from another database, counts as the newest event.
        """

        def work(connection: sqlite3.Connection) -> EventPage:
            start = min(max(cursor, 0), _newest(connection))
            count = max(1, min(limit, MAX_PAGE))
            if delegation_id is None:
                rows = connection.execute("SELECT * FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (start, count))
            else:
                rows = connection.execute(
                    "SELECT * FROM events WHERE delegation_id = ? AND seq > ? ORDER BY seq LIMIT ?",
                    (delegation_id, start, count),
                )
            events = [
                Event(
                    seq=row["seq"], at=row["at"], kind=EventKind(row["kind"]), delegation_id=row["delegation_id"],
                    data=load_object(row["data"]),
                )
                for row in rows
            ]  # fmt: skip
            return EventPage(events=events, cursor=events[-1].seq if events else start)

        return await self._store.read(work)

    async def wait_for_events(
        self, cursor: int, delegation_id: str | None = None, *, timeout: float, limit: int = 100
    ) -> EventPage:
        """Return events after ``cursor`` as soon as there are any, or an empty page after ``timeout`` seconds.

        Raises:
            SubletError: ``UNAVAILABLE`` where ``MAX_READERS`` wait already.
        """
        if len(self._waiting) >= MAX_READERS:
            raise SubletError(LocalCode.UNAVAILABLE, f"{MAX_READERS} readers wait already", "Poll without waiting.")
        news = asyncio.Event()
        # Registered before looking, so that nothing falls between the look and the wait.
        self._waiting[news] = delegation_id
        try:
            page = await self.events_after(cursor, delegation_id, limit)
            if page.events or timeout <= 0:
                return page
            try:
                async with asyncio.timeout(timeout):
                    await news.wait()
            except TimeoutError:
                return page
            return await self.events_after(page.cursor, delegation_id, limit)
        finally:
            del self._waiting[news]

    def _wake(self, events: Sequence[Event]) -> None:
        if not events:
            return
        touched = {event.delegation_id for event in events}
        for news, wanted in self._waiting.items():
            if wanted is None or wanted in touched:
                news.set()


def _newest(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return row["seq"] if row else 0

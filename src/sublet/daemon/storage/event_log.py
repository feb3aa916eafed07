"""The log of events: append in a transaction, read from a cursor, wait for news (SuperAgent 9.1, DESIGN 7)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar, cast

from sublet import deadlines
from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.events import EventPage
from sublet.daemon.storage.kept_documents import drop_unused, keep, kept
from sublet.daemon.storage.store import Store
from sublet.daemon.times import rfc3339
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Document
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventFilter, EventKeys, EventKind

T = TypeVar("T")

KEEP_EVENTS = 200_000
"""The newest stay; a reader that is further behind goes on with the oldest there is."""
PRUNE_EVERY = 1_000
KEY_NAMES = frozenset(EventKeys().model_dump(by_alias=True))
"""Of the key fields, which stand in columns of their own and nowhere else."""
_KINDS = frozenset(EventKind)
MAX_READERS = 512
"""Long polls and event streams at one time."""


def load_object(text: str) -> dict[str, JsonValue]:
    """Return the JSON object that was kept; an empty one where the row is torn, since nobody may fail who reads on."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, JsonValue]", found) if isinstance(found, dict) else {}


class Recorder:
    """Adds events inside a transaction of ``EventLog.transact``."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.events: list[Event] = []

    def add(
        self,
        kind: EventKind,
        delegation_id: str | None,
        data: Mapping[str, JsonValue],
        *,
        keys: EventKeys | None = None,
        keeps: Sequence[Document] = (),
    ) -> Event:
        """Add an event; it becomes visible with the transaction.

        Args:
            kind: what happened.
            delegation_id: to which delegation or assignment, if any.
            data: what else there is to say of it; no key field.
            keys: of which run it is a part. An event of a delegation that names no request is of the delegation's
                own, and one that names no cause follows from its last state or prompt.
            keeps: what ``data`` refers to by digest.

        Raises:
            ValueError: a key field in ``data``, where nobody looks for it.
        """
        if misplaced := KEY_NAMES & data.keys():
            raise ValueError(f"key fields belong into the keys of an event: {', '.join(sorted(misplaced))}")
        at = rfc3339()
        keys = self._completed(delegation_id, keys or EventKeys())
        cursor = self._connection.execute(
            """INSERT INTO events (at, kind, delegation_id, session_id, agent_id, provider_session_id, request_id,
                route_decision, causation_id, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
            (
                at,
                str(kind),
                delegation_id,
                keys.finger_session_id,
                keys.agent_id,
                keys.provider_session_id,
                keys.request_id,
                keys.route_decision,
                keys.causation_id,
                json.dumps(data, ensure_ascii=False, separators=(",", ":")),
            ),
        )
        seq = cursor.lastrowid
        assert seq is not None
        for document in keeps:
            keep(self._connection, document, seq)
        if seq % PRUNE_EVERY == 0:
            # Those stay from which is known whose a name was: there is one for each link that a person made.
            self._connection.execute(
                "DELETE FROM events WHERE seq <= ? AND kind NOT IN ('peer_paired', 'peer_removed')",
                (seq - KEEP_EVENTS,),
            )
            drop_unused(self._connection, seq - KEEP_EVENTS + 1)
        event = Event(seq=seq, at=at, kind=kind, delegation_id=delegation_id, keys=keys, data=dict(data))
        self.events.append(event)
        return event

    def keys_after(self, seq: int) -> EventKeys:
        """Return the keys of what follows from the event ``seq``; where that is gone, the cause is still named."""
        row = self._connection.execute("SELECT * FROM events WHERE seq = ?", (seq,)).fetchone()
        keys = EventKeys() if row is None else _keys(row)
        return keys.model_copy(update={"causation_id": seq})

    def _completed(self, delegation_id: str | None, keys: EventKeys) -> EventKeys:
        if delegation_id is None:
            return keys
        known: dict[str, str | int | None] = {"request_id": keys.request_id or delegation_id}
        if keys.causation_id is None:
            found = self._connection.execute(
                """SELECT max(seq) AS seq FROM events WHERE delegation_id = ?
                AND kind IN ('delegation_state', 'assignment_state', 'delegation_follow_up')""",
                (delegation_id,),
            ).fetchone()
            known["causation_id"] = found["seq"]
        return keys.model_copy(update=known)


class EventLog:
    """Events in the store, and those in this process who wait for them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[asyncio.Event, EventFilter] = {}

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

    async def append_event(
        self,
        kind: EventKind,
        delegation_id: str | None,
        data: Mapping[str, JsonValue],
        *,
        keys: EventKeys | None = None,
        keeps: Sequence[Document] = (),
    ) -> Event:
        """Add an event that goes with no change of a record; as ``Recorder.add``."""
        return await self.transact(lambda _, events: events.add(kind, delegation_id, data, keys=keys, keeps=keeps))

    async def tell(
        self, kind: EventKind, keys: EventKeys, data: Mapping[str, JsonValue], keeps: Sequence[Document] = ()
    ) -> int:
        """Add an event that is of no delegation, and return its number, which later ones name as their cause."""
        return (await self.append_event(kind, None, dict(data), keys=keys, keeps=keeps)).seq

    async def documents(self, digests: Collection[str]) -> dict[str, JsonValue]:
        """Return what is kept under these digests; what is not there any more is left out."""
        return await self._store.read(lambda connection: kept(connection, digests))

    async def newest_event(self, delegation_id: str | None = None) -> int:
        """Return the number of the newest event, of all or of one delegation; 0 where there is none."""

        def work(connection: sqlite3.Connection) -> int:
            if delegation_id is None:
                return _newest(connection)
            query = "SELECT coalesce(max(seq), 0) AS seq FROM events WHERE delegation_id = ?"
            return int(connection.execute(query, (delegation_id,)).fetchone()["seq"])

        return await self._store.read(work)

    async def newest_of(self, kind: EventKind, limit: int) -> list[Event]:
        """Return the newest events of a kind, the oldest of them first; of ``KEEP_EVENTS`` there are at most."""

        def work(connection: sqlite3.Connection) -> list[Event]:
            rows = connection.execute(
                "SELECT * FROM events WHERE kind = ? ORDER BY seq DESC LIMIT ?",
                (str(kind), max(1, min(limit, MAX_PAGE))),
            ).fetchall()
            return [_event(row) for row in reversed(rows)]

        return await self._store.read(work)

    async def events_after(
        self, cursor: int, delegation_id: str | None = None, limit: int = 100, *, only: EventFilter | None = None
    ) -> EventPage:
        """Return at most ``limit`` events after ``cursor``; the page's cursor is where to go on.

        Args:
            cursor: ``seq`` of the last event that was read. One from the future, left over from another database,
                counts as the newest event.
            delegation_id: only events of this delegation.
            limit: events, at most ``MAX_PAGE``.
            only: which events in place of ``delegation_id``.
        """
        wanted = only or EventFilter(delegation_id=delegation_id)
        columns = {"delegation_id": wanted.delegation_id, "session_id": wanted.session_id, "kind": wanted.kind}
        given = {name: str(value) for name, value in columns.items() if value is not None}
        fixed = ["seq > ?"] if wanted.sessions else ["session_id IS NULL", "seq > ?"]
        conditions = " AND ".join([f"{name} = ?" for name in given] + fixed)

        def work(connection: sqlite3.Connection) -> EventPage:
            start = min(max(cursor, 0), _newest(connection))
            count = max(1, min(limit, MAX_PAGE))
            rows = connection.execute(
                f"SELECT * FROM events WHERE {conditions} ORDER BY seq LIMIT ?",  # noqa: S608 - names of columns
                (*given.values(), start, count),
            )
            events = [_event(row) for row in rows]
            return EventPage(events=events, cursor=events[-1].seq if events else start)

        return await self._store.read(work)

    async def wait_for_events(
        self,
        cursor: int,
        delegation_id: str | None = None,
        *,
        timeout: float,
        limit: int = 100,
        only: EventFilter | None = None,
    ) -> EventPage:
        """Return events after ``cursor`` as soon as there are any, or an empty page after ``timeout`` seconds.

        Raises:
            SubletError: ``UNAVAILABLE`` where ``MAX_READERS`` wait already.
        """
        if len(self._waiting) >= MAX_READERS:
            raise SubletError(LocalCode.UNAVAILABLE, f"{MAX_READERS} readers wait already", "Poll without waiting.")
        news = asyncio.Event()
        # Registered before looking, so that nothing falls between the look and the wait.
        wanted = only or EventFilter(delegation_id=delegation_id)
        self._waiting[news] = wanted
        try:
            page = await self.events_after(cursor, limit=limit, only=wanted)
            if page.events or timeout <= 0:
                return page
            try:
                async with deadlines.timeout(timeout):
                    await news.wait()
            except TimeoutError:
                return page
            return await self.events_after(page.cursor, limit=limit, only=wanted)
        finally:
            del self._waiting[news]

    def _wake(self, events: Sequence[Event]) -> None:
        if not events:
            return
        for news, wanted in self._waiting.items():
            if not news.is_set() and any(wanted.fits(event) for event in events):
                news.set()


def _event(row: sqlite3.Row) -> Event:
    return Event(
        seq=row["seq"],
        at=row["at"],
        kind=_kind(row["kind"]),
        delegation_id=row["delegation_id"],
        keys=_keys(row),
        data=load_object(row["data"]),
    )


def _kind(name: str) -> EventKind | str:
    """Return the kind; by its name alone where another version wrote it, of which nobody here knows anything."""
    return EventKind(name) if name in _KINDS else name


def _keys(row: sqlite3.Row) -> EventKeys:
    return EventKeys(
        finger_session_id=row["session_id"],
        agent_id=row["agent_id"],
        provider_session_id=row["provider_session_id"],
        request_id=row["request_id"],
        route_decision=row["route_decision"],
        causation_id=row["causation_id"],
    )


def _newest(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
    return row["seq"] if row else 0

"""What has happened and what is held: the journal of transitions, events and acquired resources (DESIGN 4.1, 4.10).

A state and the event that tells of it go into one transaction, and before the effect they announce. A resource is
journalled before it is taken and released after it is given back, so that what a killed daemon held is found again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Literal, TypeVar

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.storage.event_log import PRUNE_EVERY, EventLog, Recorder, load_object
from sublet.daemon.storage.records import AssignmentRecord, DelegationRecord
from sublet.daemon.storage.store import Store
from sublet.daemon.storage.stored import read_assignment, read_delegation, to_json
from sublet.daemon.storage.torn_rows import RowsOf, TornRows
from sublet.daemon.times import rfc3339, unix_seconds
from sublet.disk.set_aside import SetAside
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKeys, EventKind
from sublet.protocol.lifecycle import (
    ASSIGNMENT_TABLE,
    DELEGATION_TABLE,
    AssignmentState,
    DelegationState,
    EventT,
    IllegalTransition,
    StateT,
)
from sublet.protocol.text import clean_line

KEEP_RELEASED = 10_000

RecordT = TypeVar("RecordT", DelegationRecord, AssignmentRecord)


def _request_of(data: Mapping[str, JsonValue] | None, record_id: str) -> str:
    """Return the follow-up that an event is about, or else the delegation."""
    follow_up = (data or {}).get("follow_up_id")
    return follow_up if isinstance(follow_up, str) else record_id


def _marks(values: Sequence[str]) -> str:
    return ", ".join("?" for _ in values)


def _take(connection: sqlite3.Connection, owner: str, kind: str, detail: Mapping[str, JsonValue]) -> int:
    cursor = connection.execute(
        "INSERT INTO resources (owner, kind, detail, acquired_at) VALUES (?, ?, ?, ?)",
        (owner, kind, json.dumps(detail), rfc3339()),
    )
    number = cursor.lastrowid
    assert number is not None
    if number % PRUNE_EVERY == 0:
        connection.execute("DELETE FROM resources WHERE released_at IS NOT NULL AND id <= ?", (number - KEEP_RELEASED,))
    return number


def _give_back(connection: sqlite3.Connection, owner: str, kinds: Sequence[str]) -> int:
    only = f" AND kind IN ({_marks(kinds)})" if kinds else ""
    return connection.execute(
        f"UPDATE resources SET released_at = ? WHERE owner = ? AND released_at IS NULL{only}",  # noqa: S608 - marks
        (rfc3339(), owner, *kinds),
    ).rowcount


class _Table:
    """A table of records: its name, its columns besides the common ones, and the states it goes through."""

    def __init__(
        self, name: str, extra: tuple[str, ...], first: StrEnum, states: Mapping[StateT, Mapping[EventT, StateT]]
    ) -> None:
        self.name = name
        self.first = str(first)
        self.next = {str(state): {str(after) for after in ways.values()} for state, ways in states.items()}
        self.ends = tuple(state for state, after in self.next.items() if not after)
        columns = ("id", "state", "record", "created_at", "updated_at", *extra)
        self.of = RowsOf(name)
        self.insert = f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({_marks(columns)})"  # noqa: S608 - constants


_DELEGATIONS = _Table("delegations", ("caller", "idempotency_key"), DelegationState.CREATED, DELEGATION_TABLE)
_ASSIGNMENTS = _Table("assignments", ("peer",), AssignmentState.PENDING, ASSIGNMENT_TABLE)


@dataclass(frozen=True, slots=True)
class Held:
    """What is taken and given back in the transaction of a record, one commit instead of two.

    Args:
        takes: details of what the record's owner is about to take, by kind.
        gives_back: kinds of what was given back, where empty stands for all kinds; None for nothing.
    """

    takes: Mapping[str, Mapping[str, JsonValue]] = field(default_factory=dict)
    gives_back: tuple[str, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.takes) or self.gives_back is not None


NOTHING: Final = Held()


@dataclass(frozen=True, slots=True)
class HeldResource:
    """Something that was acquired and not released yet: lease, lock, view, apply, mount, slot, process, remote_task."""

    id: int
    owner: str
    kind: str
    detail: dict[str, JsonValue]
    acquired_at: str


@dataclass(frozen=True, slots=True)
class Forgettable:
    """A delegation or assignment that is over: when it ended (Unix seconds), and what it takes with its events."""

    id: str
    ended_at: float
    bytes: int
    events: int
    workspace: str


class Journal(EventLog):
    """The event log, with the records of delegations and assignments and the resources they hold.

    Args:
        store: the open database.
        aside: takes rows that are no records, so that one of them never keeps the others, or the daemon, from working.
    """

    def __init__(self, store: Store, aside: SetAside | None = None) -> None:
        super().__init__(store)
        self.rows = TornRows(store, aside)

    # Delegations and assignments

    async def save_delegation(
        self,
        record: DelegationRecord,
        kind: EventKind | None = None,
        data: Mapping[str, JsonValue] | None = None,
        held: Held = NOTHING,
    ) -> Event | None:
        """Add or replace the record of a delegation and, where ``kind`` is given, tell of it in the same transaction.

        What is ``held`` is journalled in it as well.

        Raises:
            IllegalTransition: the table has no way from the recorded state to this one, or a new record does not
                begin at the beginning.
            SubletError: ``CONFLICT`` where the caller's idempotency key belongs to another delegation, or where the
                record on the disk is of a newer generation: the words of a zombie change nothing.
        """
        extra = (record.caller, record.request.idempotency_key)
        return await self._save(_DELEGATIONS, record, extra, kind, data, held)

    async def load_delegation(self, delegation_id: str) -> DelegationRecord | None:
        """Return one delegation, or None."""
        found = await self._load(_DELEGATIONS, read_delegation, "WHERE id = ?", (delegation_id,))
        return found[0] if found else None

    async def require_delegation(self, delegation_id: str) -> DelegationRecord:
        """Return one delegation.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        record = await self.load_delegation(delegation_id)
        if record is None:
            raise SubletError(
                LocalCode.NOT_FOUND, f"there is no delegation {clean_line(delegation_id, 80)}", "See: sublet ls --all"
            )
        return record

    async def find_delegation(self, caller: str, idempotency_key: str) -> DelegationRecord | None:
        """Return the delegation that ``caller`` made with this key, or None."""
        only = "WHERE caller = ? AND idempotency_key = ?"
        found = await self._load(_DELEGATIONS, read_delegation, only, (caller, idempotency_key))
        return found[0] if found else None

    async def list_delegations(
        self, *, limit: int = MAX_PAGE, active: bool = False, before: str | None = None
    ) -> list[DelegationRecord]:
        """Return delegations, the newest first.

        Args:
            limit: how many at most.
            active: only those that are not over.
            before: only those that are older than the one with this id.

        Raises:
            SubletError: ``NOT_FOUND`` where there is none with the id ``before``.
        """
        return await self._list(_DELEGATIONS, read_delegation, limit, active, before)

    async def list_settled(self, *, settled: bool, limit: int = MAX_PAGE) -> list[DelegationRecord]:
        """Return delegations that are over and cleaned up after, the oldest first, or else those that are not yet."""
        only = "WHERE json_extract(record, '$.settled') = ? ORDER BY created_at, id LIMIT ?"
        return await self._load(_DELEGATIONS, read_delegation, only, (int(settled), limit))

    async def count_delegations(self) -> dict[str, int]:
        """Return how many delegations there are in each state."""

        def work(connection: sqlite3.Connection) -> dict[str, int]:
            rows = connection.execute("SELECT state, count(*) AS n FROM delegations GROUP BY state").fetchall()
            return {row["state"]: row["n"] for row in rows}

        return await self.read(work)

    async def save_assignment(
        self,
        record: AssignmentRecord,
        kind: EventKind | None = None,
        data: Mapping[str, JsonValue] | None = None,
        held: Held = NOTHING,
    ) -> Event | None:
        """Add or replace the record of an assignment; as ``save_delegation``."""
        return await self._save(_ASSIGNMENTS, record, (record.peer,), kind, data, held)

    async def load_assignment(self, delegation_id: str) -> AssignmentRecord | None:
        """Return one assignment, or None."""
        found = await self._load(_ASSIGNMENTS, read_assignment, "WHERE id = ?", (delegation_id,))
        return found[0] if found else None

    async def list_assignments(
        self, *, limit: int = MAX_PAGE, active: bool = False, before: str | None = None
    ) -> list[AssignmentRecord]:
        """Return assignments, the newest first; as ``list_delegations``."""
        return await self._list(_ASSIGNMENTS, read_assignment, limit, active, before)

    async def list_forgettable(self, table: Literal["delegations", "assignments"], limit: int) -> list[Forgettable]:
        """Return what is over and settled, that which ended first first, with what forgetting it would free."""
        only, values = "json_extract(record, '$.settled') = 1", tuple[str, ...]()
        if table == "assignments":
            only, values = f"state IN ({_marks(_ASSIGNMENTS.ends)})", _ASSIGNMENTS.ends

        def work(connection: sqlite3.Connection) -> list[Forgettable]:
            rows = connection.execute(
                f"""SELECT id, updated_at, coalesce(json_extract(record, '$.resources[0].path'), '') AS workspace,
                    length(record) + coalesce((SELECT sum(length(data)) FROM events WHERE delegation_id = t.id), 0)
                        AS bytes,
                    (SELECT count(*) FROM events WHERE delegation_id = t.id) AS events
                FROM {table} AS t WHERE {only} ORDER BY updated_at, id LIMIT ?""",  # noqa: S608 - constants and marks
                (*values, limit),
            )
            found: list[Forgettable] = []
            for row in rows:
                with suppress(ValueError):  # the next start sets it aside
                    ended_at = unix_seconds(row["updated_at"])
                    found.append(Forgettable(row["id"], ended_at, row["bytes"], row["events"], row["workspace"]))
            return found

        return await self.read(work)

    async def forget_oldest_of(self, peer: str, keep: int) -> int:
        """Remove the oldest ended assignments of ``peer`` until the rest takes ``keep`` bytes; return how many went."""

        def work(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute(
                f"""SELECT id FROM (
                    SELECT id, sum(length(CAST(record AS BLOB))) OVER (ORDER BY updated_at DESC, id DESC) AS bytes
                    FROM assignments WHERE peer = ? AND state IN ({_marks(_ASSIGNMENTS.ends)})
                ) WHERE bytes > ?""",  # noqa: S608 - marks
                (peer, *_ASSIGNMENTS.ends, keep),
            )
            return [row["id"] for row in rows]

        found = await self.read(work)
        if found:
            await self.forget(assignments=found)
        return len(found)

    async def delegation_ids(self) -> frozenset[str]:
        """Return the ids of all delegations that are kept."""

        def work(connection: sqlite3.Connection) -> frozenset[str]:
            return frozenset(row["id"] for row in connection.execute("SELECT id FROM delegations"))

        return await self.read(work)

    async def workspaces(self) -> dict[str, set[str]]:
        """Return the directories that delegations were made of, each with the ids of those that are kept."""

        def work(connection: sqlite3.Connection) -> dict[str, set[str]]:
            found: dict[str, set[str]] = {}
            rows = connection.execute(
                """SELECT d.id, json_extract(lent.value, '$.path') AS workspace
                FROM delegations AS d, json_each(d.record, '$.resources') AS lent"""
            )
            for row in rows:
                found.setdefault(row["workspace"], set()).add(row["id"])
            return found

        return await self.read(work)

    async def forget(self, *, delegations: Sequence[str] = (), assignments: Sequence[str] = ()) -> int:
        """Remove ended delegations and assignments with their events and return how many events went with them."""

        def work(connection: sqlite3.Connection, _: Recorder) -> int:
            before = connection.total_changes
            for one in (*delegations, *assignments):
                connection.execute("DELETE FROM events WHERE delegation_id = ?", (one,))
            events = connection.total_changes - before
            connection.executemany("DELETE FROM delegations WHERE id = ?", [(one,) for one in delegations])
            connection.executemany("DELETE FROM assignments WHERE id = ?", [(one,) for one in assignments])
            return events

        return await self.transact(work)

    async def shrink(self) -> tuple[int, int]:
        """Give the room of what was forgotten back to the file system: ``Store.shrink``."""
        return await self._store.shrink()

    # Resources

    async def acquire(self, owner: str, kind: str, detail: Mapping[str, JsonValue]) -> int:
        """Journal that ``owner`` is about to take something, and return the number to release it by."""
        return await self.transact(lambda connection, _: _take(connection, owner, kind, detail))

    async def release(self, number: int) -> None:
        """Journal that a resource was given back; twice is no error."""
        await self.transact(
            lambda connection, _: (
                connection.execute(
                    "UPDATE resources SET released_at = ? WHERE id = ? AND released_at IS NULL", (rfc3339(), number)
                ).rowcount
            )
        )

    async def release_owned(self, owner: str, *kinds: str) -> int:
        """Journal that all resources of ``owner``, or those of some kinds, were given back; return how many."""
        return await self.transact(lambda connection, _: _give_back(connection, owner, kinds))

    async def open_resources(self, owner: str | None = None) -> list[HeldResource]:
        """Return what is held, the oldest first; after a start, what the last process left behind."""

        def work(connection: sqlite3.Connection) -> list[HeldResource]:
            rows = connection.execute(
                "SELECT * FROM resources WHERE released_at IS NULL AND (?1 IS NULL OR owner = ?1) ORDER BY id", (owner,)
            )
            return [
                HeldResource(row["id"], row["owner"], row["kind"], load_object(row["detail"]), row["acquired_at"])
                for row in rows
            ]

        return await self.read(work)

    async def _save(
        self,
        table: _Table,
        record: DelegationRecord | AssignmentRecord,
        extra: tuple[str | None, ...],
        kind: EventKind | None,
        data: Mapping[str, JsonValue] | None,
        held: Held,
    ) -> Event | None:
        new, text = str(record.state), to_json(record)

        def work(connection: sqlite3.Connection, events: Recorder) -> Event | None:
            known = "SELECT state, json_extract(record, '$.generation') AS generation"
            found = connection.execute(f"{known} FROM {table.name} WHERE id = ?", (record.id,)).fetchone()
            old = found["state"] if found is not None else None
            if found is not None and found["generation"] > record.generation:
                raise SubletError(
                    LocalCode.CONFLICT, f"{record.id} was taken over by a newer process", "Let the newer one go on."
                )
            if new != old and new not in (table.next[old] if old is not None else {table.first}):
                raise IllegalTransition(f"{record.id}: no transition from {old} to {new}")
            if old is None:
                connection.execute(table.insert, (record.id, new, text, record.created_at, record.updated_at, *extra))
            else:
                connection.execute(
                    f"UPDATE {table.name} SET state = ?, record = ?, updated_at = ? WHERE id = ?",  # noqa: S608 - constant
                    (new, text, record.updated_at, record.id),
                )
            for one, detail in held.takes.items():
                _take(connection, record.id, one, detail)
            if held.gives_back is not None:
                _give_back(connection, record.id, held.gives_back)
            keys = EventKeys(agent_id=record.agent, request_id=_request_of(data, record.id))
            return None if kind is None else events.add(kind, record.id, data or {}, keys=keys)

        try:
            return await self.transact(work)
        except sqlite3.IntegrityError:
            raise SubletError(
                LocalCode.CONFLICT, "the idempotency key belongs to another delegation", "Use a new key."
            ) from None

    async def _list(
        self, table: _Table, read: Callable[[bytes], RecordT], limit: int, active: bool, before: str | None
    ) -> list[RecordT]:
        only = ["true"]
        values: list[str] = []
        if active:
            only.append(f"state NOT IN ({_marks(table.ends)})")
            values += table.ends
        if before is not None:
            place = await self._created_at(table, before)
            only.append("(created_at, id) < (?, ?)")
            values += [place, before]
        where = f"WHERE {' AND '.join(only)} ORDER BY created_at DESC, id DESC LIMIT ?"
        return await self._load(table, read, where, (*values, limit))

    async def _created_at(self, table: _Table, record_id: str) -> str:
        def work(connection: sqlite3.Connection) -> str | None:
            asked = f"SELECT created_at FROM {table.name} WHERE id = ?"  # noqa: S608 - one of two constants
            row = connection.execute(asked, (record_id,)).fetchone()
            return None if row is None else str(row["created_at"])

        found = await self.read(work)
        if found is None:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"there is no {clean_line(record_id, 64)!r} to list what came before it",
                "It may have been pruned: list from the newest on.",
            )
        return found

    async def _load(
        self, table: _Table, read: Callable[[bytes], RecordT], rest: str, values: Sequence[str | int]
    ) -> list[RecordT]:
        """Return records. A row that is none is set aside, and the others are asked for once more."""

        def record_of(row: sqlite3.Row) -> RecordT:
            record = read(bytes(row["record"]))
            if (row["id"], row["state"], row["updated_at"]) != (record.id, record.state, record.updated_at):
                raise ValueError("its columns are not those of its record")
            for at in (record.created_at, record.updated_at, record.expires_at):
                if at is not None:
                    unix_seconds(at)
            return record

        return await self.rows.sound(table.of, record_of, rest, values, columns=_COLUMNS, raw=_record)

    async def set_torn_aside(self) -> None:
        """Set rows aside with which no question about all records could be answered, as they are no JSON at all."""
        for table in (_DELEGATIONS, _ASSIGNMENTS):
            torn = f"""WHERE NOT json_valid(CAST(record AS TEXT)) OR state NOT IN ({_marks(tuple(table.next))})
                OR julianday(created_at) IS NULL OR julianday(updated_at) IS NULL"""
            await self.rows.sound(table.of, _no_record, torn, tuple(table.next), columns=_COLUMNS, raw=_record)


_COLUMNS = "id, state, updated_at, CAST(record AS BLOB) AS record"


def _record(row: sqlite3.Row) -> bytes:
    return bytes(row["record"])


def _no_record(_: sqlite3.Row) -> None:
    raise ValueError("it is no JSON, or its state or times are none")

"""The journal of delegations and assignments: their records, events and resources (DESIGN 4.1, 4.10).

Rules:

- A state, the event that tells of it and the resources it takes or gives back go into one transaction, before the
  effect that they announce.
- A record goes only where the table of its states has a way, and never back to an older generation.
- A row that is no record is set aside and keeps no other row from being read.

Weak: one writer thread serves everybody (``Store``), so that a slow disk slows all delegations.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.storage.event_log import EventLog, Recorder
from sublet.daemon.storage.forgettable import ForgettableRecords
from sublet.daemon.storage.record_tables import ASSIGNMENTS, DELEGATIONS, RecordTable, marks
from sublet.daemon.storage.records import AssignmentRecord, DelegationRecord
from sublet.daemon.storage.resource_log import NOTHING, ResourceChange, ResourceLog, give_back, take
from sublet.daemon.storage.store import Store
from sublet.daemon.storage.stored import read_assignment, read_delegation, to_json
from sublet.daemon.storage.torn_rows import TornRows
from sublet.disk.set_aside import SetAside
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKeys, EventKind
from sublet.protocol.lifecycle import IllegalTransition
from sublet.protocol.text import clean_line
from sublet.protocol.times import unix_seconds

RecordT = TypeVar("RecordT", DelegationRecord, AssignmentRecord)


def _request_of(data: Mapping[str, JsonValue] | None, record_id: str) -> str:
    """Return the follow-up that an event is about, or else the delegation."""
    follow_up = (data or {}).get("follow_up_id")
    return follow_up if isinstance(follow_up, str) else record_id


class Journal:
    """The records of delegations and assignments, beside what is told of them and what they hold.

    Args:
        store: the open database.
        aside: takes rows that are no records, so that one of them never keeps the others, or the daemon, from working.
    """

    def __init__(self, store: Store, aside: SetAside | None = None) -> None:
        self.events = EventLog(store)
        """What has happened, to these records and to all else."""
        self.resources = ResourceLog(self.events)
        """What delegations and assignments hold."""
        self.forgettable = ForgettableRecords(store, self.events)
        """The records that are over, and what forgets them."""
        self.rows = TornRows(store, aside)

    async def save_delegation(
        self,
        record: DelegationRecord,
        kind: EventKind | None = None,
        data: Mapping[str, JsonValue] | None = None,
        held: ResourceChange = NOTHING,
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
        return await self._save(DELEGATIONS, record, extra, kind, data, held)

    async def load_delegation(self, delegation_id: str) -> DelegationRecord | None:
        """Return one delegation, or None."""
        records = await self._load(DELEGATIONS, read_delegation, "WHERE id = ?", (delegation_id,))
        return records[0] if records else None

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
        records = await self._load(DELEGATIONS, read_delegation, only, (caller, idempotency_key))
        return records[0] if records else None

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
        return await self._list(DELEGATIONS, read_delegation, limit, active, before)

    async def list_settled(self, *, settled: bool, limit: int = MAX_PAGE) -> list[DelegationRecord]:
        """Return delegations that are over and cleaned up after, the oldest first, or else those that are not yet."""
        only = "WHERE json_extract(record, '$.settled') = ? ORDER BY created_at, id LIMIT ?"
        return await self._load(DELEGATIONS, read_delegation, only, (int(settled), limit))

    async def count_delegations(self) -> dict[str, int]:
        """Return how many delegations there are in each state."""

        def work(connection: sqlite3.Connection) -> dict[str, int]:
            rows = connection.execute("SELECT state, count(*) AS n FROM delegations GROUP BY state").fetchall()
            return {row["state"]: row["n"] for row in rows}

        return await self.events.read(work)

    async def save_assignment(
        self,
        record: AssignmentRecord,
        kind: EventKind | None = None,
        data: Mapping[str, JsonValue] | None = None,
        held: ResourceChange = NOTHING,
    ) -> Event | None:
        """Add or replace the record of an assignment; as ``save_delegation``."""
        return await self._save(ASSIGNMENTS, record, (record.peer,), kind, data, held)

    async def load_assignment(self, delegation_id: str) -> AssignmentRecord | None:
        """Return one assignment, or None."""
        records = await self._load(ASSIGNMENTS, read_assignment, "WHERE id = ?", (delegation_id,))
        return records[0] if records else None

    async def list_assignments(
        self, *, limit: int = MAX_PAGE, active: bool = False, before: str | None = None
    ) -> list[AssignmentRecord]:
        """Return assignments, the newest first; as ``list_delegations``."""
        return await self._list(ASSIGNMENTS, read_assignment, limit, active, before)

    async def _save(
        self,
        table: RecordTable,
        record: DelegationRecord | AssignmentRecord,
        extra: tuple[str | None, ...],
        kind: EventKind | None,
        data: Mapping[str, JsonValue] | None,
        held: ResourceChange,
    ) -> Event | None:
        new, text = str(record.state), to_json(record)

        def work(connection: sqlite3.Connection, events: Recorder) -> Event | None:
            recorded = "SELECT state, json_extract(record, '$.generation') AS generation"
            row = connection.execute(f"{recorded} FROM {table.name} WHERE id = ?", (record.id,)).fetchone()
            old = row["state"] if row is not None else None
            if row is not None and row["generation"] > record.generation:
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
            for taken, detail in held.takes.items():
                take(connection, record.id, taken, detail)
            if held.gives_back is not None:
                give_back(connection, record.id, held.gives_back)
            keys = EventKeys(agent_id=record.agent, request_id=_request_of(data, record.id))
            return None if kind is None else events.add(kind, record.id, data or {}, keys=keys)

        try:
            return await self.events.transact(work)
        except sqlite3.IntegrityError:
            raise SubletError(
                LocalCode.CONFLICT, "the idempotency key belongs to another delegation", "Use a new key."
            ) from None

    async def _list(
        self, table: RecordTable, read: Callable[[bytes], RecordT], limit: int, active: bool, before: str | None
    ) -> list[RecordT]:
        only = ["true"]
        values: list[str] = []
        if active:
            only.append(f"state NOT IN ({marks(table.ends)})")
            values += table.ends
        if before is not None:
            place = await self._created_at(table, before)
            only.append("(created_at, id) < (?, ?)")
            values += [place, before]
        where = f"WHERE {' AND '.join(only)} ORDER BY created_at DESC, id DESC LIMIT ?"
        return await self._load(table, read, where, (*values, limit))

    async def _created_at(self, table: RecordTable, record_id: str) -> str:
        def work(connection: sqlite3.Connection) -> str | None:
            asked = f"SELECT created_at FROM {table.name} WHERE id = ?"  # noqa: S608 - one of two constants
            row = connection.execute(asked, (record_id,)).fetchone()
            return None if row is None else str(row["created_at"])

        found = await self.events.read(work)
        if found is None:
            raise SubletError(
                LocalCode.NOT_FOUND,
                f"there is no {clean_line(record_id, 64)!r} to list what came before it",
                "It may have been pruned: list from the newest on.",
            )
        return found

    async def _load(
        self, table: RecordTable, read: Callable[[bytes], RecordT], rest: str, values: Sequence[str | int]
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
        for table in (DELEGATIONS, ASSIGNMENTS):
            torn = f"""WHERE NOT json_valid(CAST(record AS TEXT)) OR state NOT IN ({marks(tuple(table.next))})
                OR julianday(created_at) IS NULL OR julianday(updated_at) IS NULL"""
            await self.rows.sound(table.of, _no_record, torn, tuple(table.next), columns=_COLUMNS, raw=_record)


_COLUMNS = "id, state, updated_at, CAST(record AS BLOB) AS record"


def _record(row: sqlite3.Row) -> bytes:
    return bytes(row["record"])


def _no_record(_: sqlite3.Row) -> None:
    raise ValueError("it is no JSON, or its state or times are none")

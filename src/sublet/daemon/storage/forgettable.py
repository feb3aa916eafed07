"""Which records of delegations and assignments there are and what they take, and how those that are over are forgotten.

Rules: nothing is forgotten that is not over, and a delegation only once it is settled; its events go in the same
transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from sublet.daemon.storage.event_log import EventLog, Recorder
from sublet.daemon.storage.record_tables import ASSIGNMENTS, marks
from sublet.daemon.storage.store import Store
from sublet.protocol.times import unix_seconds


@dataclass(frozen=True, slots=True)
class Forgettable:
    """A delegation or assignment that is over: when it ended (Unix seconds), and what it takes with its events."""

    id: str
    ended_at: float
    bytes: int
    events: int
    workspace: str


class ForgettableRecords:
    """What forgets old records and gives their room back.

    Args:
        store: the open database.
        events: runs the transactions.
    """

    def __init__(self, store: Store, events: EventLog) -> None:
        self._store = store
        self._events = events

    async def list_forgettable(self, table: Literal["delegations", "assignments"], limit: int) -> list[Forgettable]:
        """Return what is over and settled, that which ended first first, with what forgetting it would free."""
        only, values = "json_extract(record, '$.settled') = 1", tuple[str, ...]()
        if table == "assignments":
            only, values = f"state IN ({marks(ASSIGNMENTS.ends)})", ASSIGNMENTS.ends

        def work(connection: sqlite3.Connection) -> list[Forgettable]:
            rows = connection.execute(
                f"""SELECT id, updated_at, coalesce(json_extract(record, '$.resources[0].path'), '') AS workspace,
                    length(record) + coalesce((SELECT sum(length(data)) FROM events WHERE delegation_id = t.id), 0)
                        AS bytes,
                    (SELECT count(*) FROM events WHERE delegation_id = t.id) AS events
                FROM {table} AS t WHERE {only} ORDER BY updated_at, id LIMIT ?""",  # noqa: S608 - constants and marks
                (*values, limit),
            )
            over: list[Forgettable] = []
            for row in rows:
                with suppress(ValueError):  # the next start sets it aside
                    ended_at = unix_seconds(row["updated_at"])
                    over.append(Forgettable(row["id"], ended_at, row["bytes"], row["events"], row["workspace"]))
            return over

        return await self._events.read(work)

    async def forget_oldest_of(self, peer: str, keep: int) -> int:
        """Remove the oldest ended assignments of ``peer`` until the rest takes ``keep`` bytes; return how many went."""

        def work(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute(
                f"""SELECT id FROM (
                    SELECT id, sum(length(CAST(record AS BLOB))) OVER (ORDER BY updated_at DESC, id DESC) AS bytes
                    FROM assignments WHERE peer = ? AND state IN ({marks(ASSIGNMENTS.ends)})
                ) WHERE bytes > ?""",  # noqa: S608 - marks
                (peer, *ASSIGNMENTS.ends, keep),
            )
            return [row["id"] for row in rows]

        oldest = await self._events.read(work)
        if oldest:
            await self.forget(assignments=oldest)
        return len(oldest)

    async def delegation_ids(self) -> frozenset[str]:
        """Return the ids of all delegations that are kept."""

        def work(connection: sqlite3.Connection) -> frozenset[str]:
            return frozenset(row["id"] for row in connection.execute("SELECT id FROM delegations"))

        return await self._events.read(work)

    async def workspaces(self) -> dict[str, set[str]]:
        """Return the directories that delegations were made of, each with the ids of those that are kept."""

        def work(connection: sqlite3.Connection) -> dict[str, set[str]]:
            lent: dict[str, set[str]] = {}
            rows = connection.execute(
                """SELECT d.id, json_extract(lent.value, '$.path') AS workspace
                FROM delegations AS d, json_each(d.record, '$.resources') AS lent"""
            )
            for row in rows:
                lent.setdefault(row["workspace"], set()).add(row["id"])
            return lent

        return await self._events.read(work)

    async def forget(self, *, delegations: Sequence[str] = (), assignments: Sequence[str] = ()) -> int:
        """Remove ended delegations and assignments with their events and return how many events went with them."""

        def work(connection: sqlite3.Connection, _: Recorder) -> int:
            before = connection.total_changes
            for record_id in (*delegations, *assignments):
                connection.execute("DELETE FROM events WHERE delegation_id = ?", (record_id,))
            events = connection.total_changes - before
            connection.executemany("DELETE FROM delegations WHERE id = ?", [(record_id,) for record_id in delegations])
            connection.executemany("DELETE FROM assignments WHERE id = ?", [(record_id,) for record_id in assignments])
            return events

        return await self._events.transact(work)

    async def shrink(self) -> tuple[int, int]:
        """Give the room of what was forgotten back to the file system: ``Store.shrink``."""
        return await self._store.shrink()

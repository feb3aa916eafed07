"""The journal of federation in SQLite: tasks of other nodes, and whose each node's name is.

What a method returns from is on the disk (``synchronous=FULL``), so that nothing is started twice across a kill.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import structlog
from pydantic import ValidationError

from sublet.daemon.federation.ledger_schema import SCHEMA
from sublet.federation.ports import TaskRow
from sublet.migrations.damage import is_damage
from sublet.migrations.database import prepare
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import NodeName
from sublet.protocol.federation.errors import FederationCode
from sublet.protocol.federation.events import TaskResult, failure_result

KEPT_HEARD_SECONDS: Final = 3_600.0
"""A task whose result was taken is known for so long, far longer than its request could be sent again."""
KEPT_UNHEARD_SECONDS: Final = 7 * 86_400.0
MAX_BYTES_OF_NODE: Final = 64 << 20
"""Of results that are kept for one node; of the oldest beyond it only that they were done is known."""
MAX_UNHEARD: Final = 1_000
"""Tasks of a node that are at work, or whose result it has not taken: with as many it gets no further one."""
MAX_ROWS: Final = 16
"""Results that are read at once, each of which may be as large as an envelope."""
MAX_NAMES: Final = 4_096
MAX_NAMES_OF_KEY: Final = 8
PRUNE_EVERY: Final = 100
FORGOTTEN: Final = failure_result(FederationCode.TIMEOUT, "the result was not fetched and is gone", "forgotten")

log = structlog.get_logger(__name__)

T = TypeVar("T")

_KNOWN: Final = "SELECT * FROM tasks WHERE node = ? AND request = ?"
_PRUNE: Final = (
    "DELETE FROM tasks WHERE heard AND at < :heard",
    "DELETE FROM tasks WHERE NOT heard AND result IS NOT NULL AND at < :unheard",
    "UPDATE tasks SET result = :gone WHERE result <> :gone AND (node, request) IN (SELECT node, request FROM ("
    "SELECT node, request, sum(length(result)) OVER newest AS size FROM tasks WHERE result IS NOT NULL"
    " WINDOW newest AS (PARTITION BY node ORDER BY at DESC, request)) WHERE size > :bytes)",
)


class FederationLedger:
    """Implements ``Ledger`` and ``Names``. All statements run in order on one thread of its own.

    Args:
        path: the database file; made with mode 0600 where it does not exist.
        wall: Unix seconds.
    """

    def __init__(self, path: Path, wall: Callable[[], float] = time.time) -> None:
        self._path = path
        self._wall = wall
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="federation-ledger")
        self._db: sqlite3.Connection | None = None
        self._taken = 0

    async def open(self) -> None:
        """Open or make the file.

        Raises:
            SubletError: ``UNAVAILABLE`` where it can't be opened or is no such file; ``STATE_VERSION`` where another
                version wrote it that can't be taken up.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, self._open)

    async def aclose(self) -> None:
        """Finish what is under way and close the file."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def take(self, row: TaskRow) -> TaskRow | None:
        """``Ledger.take``."""

        def work(db: sqlite3.Connection) -> TaskRow | None:
            self._taken += 1
            if self._taken % PRUNE_EVERY == 0:
                self._prune(db)
            # Through the index of what is unheard, since of what was heard there may be far more.
            unheard = db.execute("SELECT count(*) FROM tasks WHERE heard = 0 AND +node = ?", (row.node_id,)).fetchone()
            if unheard[0] >= MAX_UNHEARD and not db.execute(_KNOWN, (row.node_id, row.request_id)).fetchone():
                raise SubletError(
                    LocalCode.UNAVAILABLE,
                    f"that node has not taken {MAX_UNHEARD} results yet",
                    "It gets them as soon as it is reached.",
                )
            added = db.execute(
                "INSERT INTO tasks VALUES (?, ?, ?, ?, NULL, 0, ?) ON CONFLICT DO NOTHING",
                (row.node_id, row.request_id, row.agent_id, row.requester, self._wall()),
            ).rowcount
            if added:
                return None
            return _row(db.execute(_KNOWN, (row.node_id, row.request_id)).fetchone())

        return await self._call(work)

    async def end(self, row: TaskRow) -> None:
        """``Ledger.end``."""
        result = row.result.model_dump_json() if row.result is not None else None
        values = (result, self._wall(), row.node_id, row.request_id)
        await self._call(
            lambda db: db.execute(
                "UPDATE tasks SET result = ?, at = ? WHERE node = ? AND request = ? AND result IS NULL", values
            )
        )

    async def heard(self, row: TaskRow) -> None:
        """``Ledger.heard``."""
        values = (self._wall(), row.node_id, row.request_id)
        await self._call(
            lambda db: db.execute("UPDATE tasks SET heard = 1, at = ? WHERE node = ? AND request = ?", values)
        )

    async def unheard(self, node_id: str) -> Sequence[TaskRow]:
        """``Ledger.unheard``."""
        query = "SELECT * FROM tasks WHERE node = ? AND NOT heard AND result IS NOT NULL ORDER BY at LIMIT ?"
        return await self._call(lambda db: [_row(one) for one in db.execute(query, (node_id, MAX_ROWS))])

    async def interrupt(self, result: TaskResult) -> int:
        """``Ledger.interrupt``."""
        values = (result.model_dump_json(), self._wall())
        return await self._call(
            lambda db: db.execute("UPDATE tasks SET result = ?, at = ? WHERE result IS NULL", values).rowcount
        )

    async def bind(self, name: NodeName, fingerprint: str) -> str | None:
        """``Names.bind``."""

        def work(db: sqlite3.Connection) -> str | None:
            found = db.execute("SELECT fingerprint FROM names WHERE name = ?", (name,)).fetchone()
            if found is not None:
                return None if found["fingerprint"] == fingerprint else str(found["fingerprint"])
            count = "SELECT count(*) FROM names"
            of_key = db.execute(f"{count} WHERE fingerprint = ?", (fingerprint,)).fetchone()[0]
            if of_key >= MAX_NAMES_OF_KEY or db.execute(count).fetchone()[0] >= MAX_NAMES:
                raise SubletError(
                    LocalCode.UNAVAILABLE, "that node has had too many names", "It has to go by one that it had."
                )
            db.execute("INSERT INTO names VALUES (?, ?, ?)", (name, fingerprint, self._wall()))
            return None

        return await self._call(work)

    async def _call(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._in_transaction, work)
        except sqlite3.DatabaseError as error:
            log.error("the journal of federation can't be used", reason=str(error), damaged=is_damage(error))
            raise SubletError(
                LocalCode.UNAVAILABLE, "the journal of federation can't be read or written just now", "See the log."
            ) from None

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if self._db is None:
            raise SubletError(LocalCode.UNAVAILABLE, "the journal of federation is closed", "Start the daemon.")
        if self._db.in_transaction:  # one that could not be taken back
            self._db.execute("ROLLBACK")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            result = work(self._db)
            self._db.execute("COMMIT")
        except BaseException:
            # A full or failing disk may have made SQLite roll back by itself.
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise
        return result

    def _open(self) -> None:
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            # Every call comes from the one thread of the pool, which sqlite3 cannot know.
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._db.row_factory = sqlite3.Row
            for setting in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000"):
                self._db.execute(f"PRAGMA {setting}")
            prepare(self._db, self._path, SCHEMA)
            self._prune(self._db)
        except (OSError, sqlite3.DatabaseError) as error:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the journal of federation in {self._path} can't be used: {error}",
                "Make it anew from what can be read: sublet doctor --repair. Or move the file aside and start again: "
                "a task that was at work is then started again if its node asks again within five minutes.",
            ) from None

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _prune(self, db: sqlite3.Connection) -> None:
        now = self._wall()
        values = {
            "heard": now - KEPT_HEARD_SECONDS,
            "unheard": now - KEPT_UNHEARD_SECONDS,
            "gone": FORGOTTEN.model_dump_json(),
            "bytes": MAX_BYTES_OF_NODE,
        }
        for statement in _PRUNE:
            db.execute(statement, values)


def _row(row: sqlite3.Row) -> TaskRow:
    result: TaskResult | None = None
    if row["result"] is not None:
        try:
            result = TaskResult.model_validate_json(row["result"])
        except ValidationError:  # damaged: it was done, and nobody knows any more what came of it
            result = FORGOTTEN
    return TaskRow(row["request"], row["node"], row["agent"], row["requester"], result)

"""Durable A2A tasks in SQLite: one row per task, an end is never overwritten, and old tasks go."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import structlog
from a2a.server.context import ServerCallContext
from a2a.server.tasks import TaskStore
from a2a.types import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InternalError, InvalidParamsError

from sublet.a2a_server.task_schema import SCHEMA
from sublet.a2a_wire.names import TERMINAL
from sublet.a2a_wire.parts import ANSWER_ARTIFACT, join_answer
from sublet.migrations.damage import is_damage
from sublet.migrations.database import prepare
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern

_UNOWNED = {"submitted": int(TaskState.TASK_STATE_SUBMITTED), "working": int(TaskState.TASK_STATE_WORKING)}
"""States that need a running producer: after a restart nobody is left to end such a task."""

MAX_ENDED_TASKS = 2_000
MAX_ENDED_BYTES = 64 << 20
"""Of each caller, so that none who asks much makes the ends of others' tasks be forgotten before they were read."""
ENDED_RETENTION_SECONDS = 7 * 24 * 3600
PARKED_RETENTION_SECONDS = 24 * 3600
MAX_PAGE_SIZE = 100
MAX_PAGE_BYTES = 128 << 10
"""Of a page of tasks, unless its first task alone is larger. Callers choose how large their tasks are, and a page is
written as JSON in one turn of the loop."""
_PRUNE_EVERY = 100
_NANOSECONDS = 1_000_000_000
_MAX_INTEGER = 2**63 - 1
_TOKEN_TIME = Pattern(r"[0-9]{1,19}")

log = structlog.get_logger(__name__)

ResultT = TypeVar("ResultT")
Rows: TypeAlias = list[tuple[Any, ...]]

_SAVE = """
INSERT INTO a2a_task VALUES(:id, :owner, :context, :state, :ended, :updated, :body)
ON CONFLICT(id) DO UPDATE SET state=:state, ended=:ended, updated=:updated, body=:body
WHERE a2a_task.owner=:owner AND NOT a2a_task.ended
"""
_MATCHES = """
FROM a2a_task WHERE owner=:owner AND (:context='' OR context_id=:context) AND (:state=0 OR state=:state)
AND updated>=:since
"""
_COUNT = "SELECT count(*) " + _MATCHES
_PAGE = (
    "SELECT updated, id, body "
    + _MATCHES
    + "AND (:before_id='' OR (updated, id) < (:before, :before_id)) ORDER BY updated DESC, id DESC LIMIT :limit"
)
_PRUNE = (
    "DELETE FROM a2a_task WHERE ended AND updated<:oldest_end",
    "DELETE FROM a2a_task WHERE NOT ended AND state NOT IN (:submitted, :working) AND updated<:oldest_parked",
    "DELETE FROM a2a_task WHERE id IN (SELECT id FROM ("
    "SELECT id, row_number() OVER newest AS place, sum(length(body)) OVER newest AS size FROM a2a_task"
    " WHERE ended WINDOW newest AS (PARTITION BY owner ORDER BY updated DESC, id)) WHERE place>:keep OR size>:bytes)",
)


class SqliteTaskStore(TaskStore):
    """Tasks of all callers, each visible to its owner only.

    All statements run in order on one thread of its own, so that the loop never waits for the disk. One process
    per file: the daemon is the only writer.

    Args:
        path: the database file; made with mode 0600 where it does not exist.
        on_answered: told the id of a task that is on disk in any state but ``SUBMITTED``.
    """

    def __init__(self, path: Path, on_answered: Callable[[str], None]) -> None:
        self._path = path
        self._on_answered = on_answered
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="a2a-tasks")
        self._db: sqlite3.Connection | None = None
        self._ended = 0
        self._closed = False

    async def open(self) -> None:
        """Open or make the file and prune it.

        Raises:
            SubletError: ``UNAVAILABLE`` where it can't be opened or is no such file; ``STATE_VERSION`` where another
                version wrote it that can't be taken up.
        """
        await self._call(self._open)

    async def aclose(self) -> None:
        """Finish what is under way and close the file; does nothing the second time."""
        if not self._closed:
            self._closed = True
            await self._call(self._close)
            self._thread.shutdown(wait=False)

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Write ``task`` unless it has ended already or belongs to somebody else."""
        await self.save_for(context.user.user_name, task)

    async def save_for(self, owner: str, task: Task) -> None:
        """Write ``task`` in the name of ``owner``."""
        join_answer(task, ANSWER_ARTIFACT)
        # The SDK goes on changing the object while we wait for the thread, so its bytes are taken here.
        row: dict[str, str | int | bytes] = {
            "id": task.id,
            "owner": owner,
            "context": task.context_id,
            "state": int(task.status.state),
            "ended": int(task.status.state in TERMINAL),
            "updated": task.status.timestamp.ToNanoseconds() or time.time_ns(),
            "body": task.SerializeToString(),
        }
        await self._call(lambda: self._save(row))
        if row["state"] != TaskState.TASK_STATE_SUBMITTED:
            self._on_answered(task.id)

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Return the caller's task of that id."""
        arguments = {"id": task_id, "owner": context.user.user_name}
        rows = await self._rows("SELECT body FROM a2a_task WHERE id=:id AND owner=:owner", arguments)
        return Task.FromString(rows[0][0]) if rows else None

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Remove the caller's task of that id."""
        arguments = {"id": task_id, "owner": context.user.user_name}
        await self._rows("DELETE FROM a2a_task WHERE id=:id AND owner=:owner", arguments)

    async def count_open(self, owner: str) -> int:
        """Return how many tasks of ``owner`` have not ended."""
        rows = await self._rows("SELECT count(*) FROM a2a_task WHERE owner=:owner AND NOT ended", {"owner": owner})
        return int(rows[0][0])

    async def orphans(self) -> Sequence[tuple[str, Task]]:
        """Return owner and task of all that a former process left without a producer."""
        query = "SELECT owner, body FROM a2a_task WHERE state IN (:submitted, :working)"
        return [(row[0], Task.FromString(row[1])) for row in await self._rows(query, _UNOWNED)]

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Return a page of the caller's tasks, newest first (A2A 1.0 ListTasks).

        Raises:
            InvalidParamsError: the page token is not one of ours.
        """
        size = min(params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE, MAX_PAGE_SIZE)
        before, before_id = _read_token(params.page_token)
        since = params.status_timestamp_after.ToNanoseconds() if params.HasField("status_timestamp_after") else 0
        arguments: dict[str, str | int] = {
            "owner": context.user.user_name,
            "context": params.context_id,
            "state": int(params.status),
            "since": max(0, min(since, _MAX_INTEGER)),
            "before": before,
            "before_id": before_id,
            "limit": size + 1,
        }
        total = (await self._rows(_COUNT, arguments))[0][0]
        rows, more = await self._call(lambda: self._page(arguments, size))
        token = f"{rows[-1][0]}:{rows[-1][1]}" if more else ""
        tasks = [Task.FromString(row[2]) for row in rows]
        return ListTasksResponse(tasks=tasks, total_size=total, page_size=size, next_page_token=token)

    def _page(self, arguments: Mapping[str, str | int], size: int) -> tuple[Rows, bool]:
        """Return the rows of a page, read one by one as far as they fit, and whether there are more."""
        rows: Rows = []
        room = MAX_PAGE_BYTES
        with closing(self._connection.execute(_PAGE, arguments)) as found:
            for row in found:
                room -= len(row[2])
                if len(rows) == size or (rows and room < 0):
                    return rows, True
                rows.append(row)
        return rows, False

    async def _rows(self, query: str, arguments: Mapping[str, str | int]) -> Rows:
        return await self._call(lambda: self._connection.execute(query, arguments).fetchall())

    async def _call(self, work: Callable[[], ResultT]) -> ResultT:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except sqlite3.DatabaseError as error:
            log.error("the tasks of A2A can't be read or written", reason=str(error), damaged=is_damage(error))
            raise InternalError(message="the tasks of this agent can't be read or written just now") from None

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise RuntimeError("the task store is not open")
        return self._db

    def _open(self) -> None:
        try:
            os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            # Every call comes from the one thread of the pool, which sqlite3 cannot know.
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            for setting in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000"):
                self._db.execute(f"PRAGMA {setting}")
            prepare(self._db, self._path, SCHEMA)
            self._prune()
        except (OSError, sqlite3.DatabaseError) as error:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the A2A tasks in {self._path} can't be used: {error}",
                "Make it anew from what can be read: sublet doctor --repair. Or move the file aside and start again: "
                "who asks for a task of before is then told that there is none.",
            ) from None

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    def _save(self, row: Mapping[str, str | int | bytes]) -> None:
        self._connection.execute(_SAVE, row)
        if row["ended"]:
            self._ended += 1
            if self._ended % _PRUNE_EVERY == 0:
                self._prune()

    def _prune(self) -> None:
        now = time.time_ns()
        arguments = {
            **_UNOWNED,
            "oldest_end": now - ENDED_RETENTION_SECONDS * _NANOSECONDS,
            "oldest_parked": now - PARKED_RETENTION_SECONDS * _NANOSECONDS,
            "keep": MAX_ENDED_TASKS,
            "bytes": MAX_ENDED_BYTES,
        }
        for statement in _PRUNE:
            self._connection.execute(statement, arguments)


def _read_token(token: str) -> tuple[int, str]:
    """Return time and id of the last row of the former page; nothing is before the first page."""
    if not token:
        return 0, ""
    updated, _, task_id = token.partition(":")
    if not _TOKEN_TIME.fullmatch(updated) or int(updated) > _MAX_INTEGER or not task_id:
        raise InvalidParamsError(message="Invalid page token")
    return int(updated), task_id

"""SQLite behind one writer: what a caller is told is written, is written (DESIGN 4.10).

One thread owns the writing connection and commits in groups: all that waited while the last commit was on its way goes
into the next one, each part behind a savepoint of its own. The database runs in WAL mode with ``synchronous=FULL``, so
a commit has reached the disk before anybody hears of it; neither ``kill -9`` nor a power cut undoes it. Another thread
reads, beside the writer.
"""

from __future__ import annotations

import asyncio
import os
import queue
import sqlite3
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import structlog

from sublet.daemon.storage.opening import BUSY_MILLISECONDS, open_database
from sublet.migrations.damage import is_damage
from sublet.migrations.database import size_of
from sublet.protocol.errors import LocalCode, SubletError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MAX_PENDING = 1024
"""Writes, and reads, that may wait at one time; further callers wait for a place."""
MAX_POSTED = 4096
"""Writes that nobody waits for and that are not done yet."""
MAX_GROUP = 256
"""Writes in one commit."""
SHRINK_PAGES = 256
"""Free pages, of 4 KiB, that are given back in one step; other writes get their turn between two."""
MAX_SHRINK_STEPS = 16_384
FOLD_MILLISECONDS = 200
"""How long a reader is waited for until the log is folded into the database; the next prune folds it otherwise."""

log = structlog.get_logger(__name__)


class _Job:
    """One piece of work and where its outcome goes; ``done`` runs on the event loop, whether anybody waits or not."""

    __slots__ = ("alone", "done", "error", "result", "work")

    def __init__(self, work: Work[Any], done: Callable[[Any, Exception | None], None], *, alone: bool = False) -> None:
        self.work = work
        self.done = done
        self.alone = alone
        self.result: Any = None
        self.error: Exception | None = None


class Store:
    """The daemon's database. Made by ``open`` inside a running event loop, ended by ``close``."""

    def __init__(
        self,
        path: Path,
        lock: int,
        writer: sqlite3.Connection,
        reader: sqlite3.Connection,
        broken: Callable[[], None],
    ) -> None:
        self.path = path
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(MAX_PENDING)
        self._read_places = asyncio.Semaphore(MAX_PENDING)
        self._posted = 0
        self._closed = False
        self._is_broken = False
        self._under_way: dict[int, list[_Job]] = {}
        """What each thread is at, so that nobody waits for ever where that breaks."""
        self._tell_broken = broken
        self._writes: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._reads: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads = (
            threading.Thread(
                target=self._run, args=(self._write_loop, writer, self._writes), name="store-writer", daemon=True
            ),
            threading.Thread(
                target=self._run, args=(self._read_loop, reader, self._reads), name="store-reader", daemon=True
            ),
        )
        for thread in self._threads:
            thread.start()

    @classmethod
    async def open(cls, path: Path, broken: Callable[[], None] = lambda: None) -> Store:
        """Open the database, making it on the first start, and recover what a killed daemon left in its log.

        Args:
            path: of the file.
            broken: is told where a thread of the store has ended by a failure; whoever waits for it was told before.

        Raises:
            SubletError: ``UNAVAILABLE`` where it is damaged, from a newer version, not ours, or can't be opened;
                ``ALREADY_RUNNING`` where another daemon has it open.
        """
        lock, writer, reader = await asyncio.to_thread(open_database, path)
        return cls(path, lock, writer, reader, broken)

    async def write(self, work: Work[T], after: Callable[[T], None] | None = None) -> T:
        """Run ``work`` in the writer's next transaction and return what it returns, once that is on the disk.

        A caller that is cancelled while it waits may find that its write has happened; writes keep the order in which
        they were asked for.

        Args:
            work: uses the connection, must not commit, must have no other effect; an exception undoes it alone.
            after: called on the event loop with the result once committed, even if the caller was cancelled.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk is full or fails, or the store is closed.
        """
        return await self._ask(self._writes, self._places, work, after)

    async def read(self, work: Work[T]) -> T:
        """Run ``work`` on the read-only connection and return what it returns; it sees every finished write."""
        return await self._ask(self._reads, self._read_places, work, None)

    def post(self, work: Work[None]) -> None:
        """Ask for a write without waiting for it.

        The order is kept: a later write is on the disk only if this one is too. A failure is logged.

        Raises:
            SubletError: ``UNAVAILABLE`` where ``MAX_POSTED`` are pending already, or the store is closed.
        """
        self._check_open()
        if self._posted >= MAX_POSTED:
            raise SubletError(LocalCode.UNAVAILABLE, "the store can't keep up", "Try again in a moment.")
        self._posted += 1

        def done(_: None, error: Exception | None) -> None:
            self._posted -= 1
            if error is not None:
                log.error("store: a write failed", reason=str(error))

        self._writes.put(_Job(work, done))

    async def shrink(self) -> tuple[int, int]:
        """Give the room of what was removed back to the file system, in small steps beside everything else.

        Returns:
            The bytes of the database and its log, before and after.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk fails, or the store is closed; what was given back stays so.
        """
        before = await asyncio.to_thread(self._bytes)
        for _ in range(MAX_SHRINK_STEPS):
            if not await self._ask(self._writes, self._places, _give_back, None, alone=True):
                break
        await self._ask(self._writes, self._places, _fold, None, alone=True)
        return before, await asyncio.to_thread(self._bytes)

    def _bytes(self) -> int:
        return size_of(self.path) + size_of(self.path.with_name(self.path.name + "-wal"))

    async def close(self) -> None:
        """Finish what was asked for, fold the log into the database and close it; twice is no error."""
        if self._closed:
            return
        self._closed = True
        writer, reader = self._threads
        # The writer goes last, since only its connection may fold the log into the database and remove it.
        for jobs, thread in ((self._reads, reader), (self._writes, writer)):
            jobs.put(None)
            await asyncio.to_thread(thread.join)
        os.close(self._lock)

    async def _ask(
        self,
        jobs: queue.SimpleQueue[_Job | None],
        places: asyncio.Semaphore,
        work: Work[T],
        after: Callable[[T], None] | None,
        *,
        alone: bool = False,
    ) -> T:
        await places.acquire()
        future: asyncio.Future[T] = self._loop.create_future()

        def done(result: T, error: Exception | None) -> None:
            places.release()
            if error is None and after is not None:
                try:
                    after(result)
                except Exception as failure:
                    error = failure
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        try:
            self._check_open()
        except SubletError:
            places.release()
            raise
        jobs.put(_Job(work, done, alone=alone))
        return await future

    def _check_open(self) -> None:
        if self._is_broken:
            raise _broken()
        if self._closed:
            raise SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping", "Start it again with `sublet up`.")

    # The two threads

    def _run(
        self,
        work: Callable[[sqlite3.Connection], None],
        connection: sqlite3.Connection,
        jobs: queue.SimpleQueue[_Job | None],
    ) -> None:
        try:
            work(connection)
        except BaseException:
            log.exception("a thread of the store broke")
            self._is_broken = True
            left = self._under_way.pop(threading.get_ident(), [])
            while not jobs.empty():
                if (job := jobs.get()) is not None:
                    left.append(job)
            for job in left:
                job.error = _broken()
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(_finish, left)
                self._loop.call_soon_threadsafe(self._tell_broken)

    def _write_loop(self, connection: sqlite3.Connection) -> None:
        going = True
        while going:
            job = self._writes.get()
            group: list[_Job] = []
            alone: _Job | None = None
            while job is not None:
                if job.alone:
                    alone = job
                    break
                group.append(job)
                if len(group) == MAX_GROUP:
                    break
                try:
                    job = self._writes.get_nowait()
                except queue.Empty:
                    break
            else:
                going = False
            self._under_way[threading.get_ident()] = [*group, *([alone] if alone is not None else [])]
            if group:
                _commit(connection, group)
                self._loop.call_soon_threadsafe(_finish, group)
            if alone is not None:
                _do(connection, alone)
                self._loop.call_soon_threadsafe(_finish, [alone])
        connection.execute("PRAGMA optimize")
        connection.close()

    def _read_loop(self, connection: sqlite3.Connection) -> None:
        while (job := self._reads.get()) is not None:
            self._under_way[threading.get_ident()] = [job]
            _do(connection, job)
            self._loop.call_soon_threadsafe(_finish, [job])
        connection.close()


def _do(connection: sqlite3.Connection, job: _Job) -> None:
    try:
        job.result = job.work(connection)
    except Exception as error:
        job.error = _translated(error)


def _give_back(connection: sqlite3.Connection) -> bool:
    """Give some free pages back, and tell whether there are more that can be."""
    before = connection.execute("PRAGMA freelist_count").fetchone()[0]
    # As a script, since the connection takes but one step, and so one page, of a statement without rows.
    connection.executescript(f"PRAGMA incremental_vacuum({SHRINK_PAGES})")
    left = connection.execute("PRAGMA freelist_count").fetchone()[0]
    return bool(0 < left < before)


def _fold(connection: sqlite3.Connection) -> None:
    """Fold the log into the database and cut both, unless somebody reads for too long."""
    connection.execute(f"PRAGMA busy_timeout={FOLD_MILLISECONDS}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")


def _commit(connection: sqlite3.Connection, group: list[_Job]) -> None:
    try:
        if connection.in_transaction:  # one that could not be taken back
            connection.execute("ROLLBACK")
        connection.execute("BEGIN IMMEDIATE")
        for job in group:
            connection.execute("SAVEPOINT job")
            try:
                job.result = job.work(connection)
            except Exception as error:
                # A full or failing disk makes SQLite roll back everything, and then nobody in the group has a result.
                if not connection.in_transaction:
                    raise
                job.error = _translated(error)
                connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
        connection.execute("COMMIT")
    except Exception as error:
        for job in group:
            job.error = _translated(error)
        if connection.in_transaction:
            try:
                connection.execute("ROLLBACK")
            except sqlite3.Error as broken:
                # What comes next is refused as well, until one succeeds.
                log.error("store: a failed write could not be taken back", reason=str(broken))


def _finish(group: list[_Job]) -> None:
    for job in group:
        try:
            job.done(job.result, job.error)
        except Exception:
            # Whoever asked for the next one is told all the same.
            log.exception("store: the outcome of a write could not be told")


def _broken() -> SubletError:
    return SubletError(
        LocalCode.UNAVAILABLE, "the store has broken", "Start the daemon again: `sublet up`. Its log tells what failed."
    )


def _translated(error: Exception) -> Exception:
    if is_damage(error):
        return SubletError(
            LocalCode.UNAVAILABLE,
            f"the daemon's database is damaged: {error}",
            "Make it anew from what can be read: sublet down, then sublet doctor --repair.",
        )
    if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.IntegrityError):
        return SubletError(
            LocalCode.UNAVAILABLE,
            f"the store failed: {error}",
            "Check that its disk has space and is healthy; what was acknowledged before is safe.",
        )
    return error

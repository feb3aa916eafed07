"""Opens the daemon's database: makes it on the first start, and refuses one that is damaged, newer or not ours."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from pathlib import Path

from sublet.daemon.storage.schema import APPLICATION_ID, SCHEMA
from sublet.migrations.database import prepare, size_of
from sublet.protocol.errors import LocalCode, SubletError

BUSY_MILLISECONDS = 5000
CACHE_KIB = 4096


def open_database(path: Path) -> tuple[int, sqlite3.Connection, sqlite3.Connection]:
    """Return the lock of the database, and the connections that write and read; it blocks.

    Raises:
        SubletError: as ``Store.open``.
    """
    lock = lock_database(path)
    opened: list[sqlite3.Connection] = []
    try:
        # A clean stop folds the log into the database and removes it, so a log means that the last stop was none.
        unclean = size_of(path.with_name(path.name + "-wal")) > 0
        writer = _connect(path)
        opened.append(writer)
        _prepare(writer, path, check=unclean)
        reader = _connect(path)
        opened.append(reader)
        reader.execute("PRAGMA query_only=ON")
    except BaseException as error:
        for connection in opened:
            connection.close()
        os.close(lock)
        if isinstance(error, sqlite3.DatabaseError):
            raise _damaged(path, str(error)) from None
        raise
    return lock, writer, reader


def lock_database(path: Path) -> int:
    """Keep a second daemon out, also one whose runtime directory differs and who therefore saw no instance lock.

    Returns:
        the descriptor that holds the lock.

    Raises:
        SubletError: ``ALREADY_RUNNING`` where another daemon has the database open; ``UNAVAILABLE`` where it can't be
            opened.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        # A file beside the database, since closing any descriptor of the database would drop SQLite's own locks.
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SubletError(
            LocalCode.UNAVAILABLE, f"{path} can't be opened: {error.strerror}", "Check the state directory."
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise SubletError(
            LocalCode.ALREADY_RUNNING, f"another daemon has {path} open", "Stop it, or set SUBLET_HOME."
        ) from None
    return lock


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=BUSY_MILLISECONDS / 1000, cached_statements=256
    )
    connection.row_factory = sqlite3.Row
    connection.text_factory = _text
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    return connection


def _text(raw: bytes) -> str:
    """Return a text of the database; what a disk has damaged in it must not hide the rows beside it."""
    return raw.decode("utf-8", "replace")


def _prepare(connection: sqlite3.Connection, path: Path, *, check: bool) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    fresh = not connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    if fresh:
        connection.execute("PRAGMA auto_vacuum=INCREMENTAL")  # can't be chosen later
    elif application != APPLICATION_ID:
        raise _damaged(path, "it is not a database of this program")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    if not prepare(connection, path, SCHEMA) and check:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise _damaged(path, str(found))


def _damaged(path: Path, why: str) -> SubletError:
    # Never set aside by itself: a daemon that quietly forgot its peers' keys would trust anybody who came next.
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"the database {path} can't be used: {why}",
        "Make it anew from what can be read, which names what could not be: sublet doctor --repair. Or move it and "
        "its -wal file aside and start again: peers and tokens must then be made anew, and `sublet doctor` finds "
        "mounts that were left behind.",
    )

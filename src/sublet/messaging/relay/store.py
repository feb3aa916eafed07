"""What a relay keeps: accounts with their history, slots, certificates, statements of rooms, and nonces it has seen."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol

from sublet.messaging.relay.accounts import Account
from sublet.messaging.relay.slots import SlotRow, SlotState
from sublet.migrations.database import prepare
from sublet.migrations.schema import Schema
from sublet.protocol.relay.errors import RelayRefusal
from sublet.protocol.relay.requests import MAX_AGE_SECONDS
from sublet.protocol.relay.room_statement import RoomStatement, parse_statement

STORE_FILE: Final = "relay.db"
_BUSY_MS: Final = 5_000
_TABLES: Final = (
    """CREATE TABLE accounts (
    name TEXT PRIMARY KEY,
    key BLOB NOT NULL,
    version INTEGER NOT NULL,
    registered_at INTEGER NOT NULL,
    revoked INTEGER NOT NULL
) WITHOUT ROWID""",
    """CREATE TABLE history (
    seq INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    key BLOB NOT NULL,
    version INTEGER NOT NULL,
    at INTEGER NOT NULL,
    what TEXT NOT NULL
)""",
    """CREATE TABLE slots (
    number INTEGER PRIMARY KEY,
    state TEXT NOT NULL,
    account TEXT NOT NULL,
    until INTEGER NOT NULL
)""",
    """CREATE TABLE certificates (
    seq INTEGER PRIMARY KEY,
    slot INTEGER NOT NULL,
    account TEXT NOT NULL,
    issued_at INTEGER NOT NULL,
    until INTEGER NOT NULL
)""",
    "CREATE TABLE rooms (room_id TEXT PRIMARY KEY, statement BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE nonces (nonce BLOB PRIMARY KEY, at INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX nonces_by_time ON nonces (at)",
    "CREATE INDEX certificates_by_end ON certificates (until)",
)
SCHEMA: Final = Schema("the relay's store", 1, _TABLES, application_id=0x53524C59)


class RelayStore(Protocol):
    """Keeps what a relay must not forget. Every method blocks; what it has returned from is on the disk."""

    def accounts(self) -> list[Account]:
        """Return all accounts."""

    def slots(self) -> list[SlotRow]:
        """Return the slots that are or were taken."""

    def statements(self, relay: str) -> list[RoomStatement]:
        """Return the last statement of each room; one that proves itself no more is left out."""

    def first_seen(self, nonce: bytes, at: int) -> bool:
        """Tell whether a nonce comes for the first time, and keep it for as long as its request could be sent again."""

    def keep_account(self, account: Account, slot: SlotRow | None, what: str, now: int) -> None:
        """Keep a change of an account, and of its slot; ``taken`` slots have got a certificate with it."""

    def keep_statement(self, statement: RoomStatement) -> None:
        """Keep the statement of a room."""

    def changes(self) -> int:
        """Return a number that is another one after somebody else has changed something."""

    def close(self) -> None:
        """End the connection, after which nothing is kept any more."""


class SqliteRelayStore:
    """``RelayStore`` in a SQLite database; any thread may call.

    Args:
        path: its file, made where it is missing; None keeps it in memory.

    Raises:
        SubletError: ``STATE_VERSION`` or ``UNAVAILABLE``: the file is of a version that can't be taken up.
    """

    def __init__(self, path: Path | None) -> None:
        if path is not None:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
        self._database.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        try:
            prepare(self._database, path, SCHEMA)
        except BaseException:
            self._database.close()
            raise

    def accounts(self) -> list[Account]:
        """``RelayStore.accounts``."""
        rows = self._rows("SELECT name, key, version, registered_at, revoked FROM accounts")
        return [Account(name, key, version, at, bool(revoked)) for name, key, version, at, revoked in rows]

    def slots(self) -> list[SlotRow]:
        """``RelayStore.slots``."""
        rows = self._rows("SELECT number, state, account, until FROM slots")
        return [SlotRow(number, SlotState(state), account, until) for number, state, account, until in rows]

    def statements(self, relay: str) -> list[RoomStatement]:
        """``RelayStore.statements``."""
        found: list[RoomStatement] = []
        for (raw,) in self._rows("SELECT statement FROM rooms"):
            try:
                found.append(parse_statement(raw, relay))
            except RelayRefusal:
                continue
        return found

    def first_seen(self, nonce: bytes, at: int) -> bool:
        """``RelayStore.first_seen``."""
        with self._writing() as database:
            database.execute("DELETE FROM nonces WHERE at < ?", (at - 3 * MAX_AGE_SECONDS,))
            return database.execute("INSERT OR IGNORE INTO nonces VALUES (?, ?)", (nonce, at)).rowcount == 1

    def keep_account(self, account: Account, slot: SlotRow | None, what: str, now: int) -> None:
        """``RelayStore.keep_account``."""
        with self._writing() as database:
            database.execute(
                "INSERT OR REPLACE INTO accounts VALUES (?, ?, ?, ?, ?)",
                (account.name, account.key, account.version, account.registered_at, int(account.revoked)),
            )
            if what != RENEWED:
                database.execute(
                    "INSERT INTO history (name, key, version, at, what) VALUES (?, ?, ?, ?, ?)",
                    (account.name, account.key, account.version, now, what),
                )
            if slot is None:
                return
            database.execute(
                "INSERT OR REPLACE INTO slots VALUES (?, ?, ?, ?)", (slot.number, slot.state, slot.account, slot.until)
            )
            database.execute("DELETE FROM slots WHERE account = ? AND number != ?", (account.name, slot.number))
            if slot.state is SlotState.TAKEN:
                database.execute(
                    "INSERT INTO certificates (slot, account, issued_at, until) VALUES (?, ?, ?, ?)",
                    (slot.number, account.name, now, slot.until),
                )
            database.execute("DELETE FROM certificates WHERE until < ?", (now,))

    def keep_statement(self, statement: RoomStatement) -> None:
        """``RelayStore.keep_statement``."""
        with self._writing() as database:
            database.execute("INSERT OR REPLACE INTO rooms VALUES (?, ?)", (statement.room, statement.encode()))

    def changes(self) -> int:
        """``RelayStore.changes``."""
        ((version,),) = self._rows("PRAGMA data_version")
        return int(version)

    def close(self) -> None:
        """``RelayStore.close``."""
        with self._lock:
            self._database.close()

    def _rows(self, sql: str) -> list[Any]:
        with self._lock:
            return self._database.execute(sql).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
            except BaseException:
                self._database.execute("ROLLBACK")
                raise
            self._database.execute("COMMIT")


RENEWED: Final = "renewed"
"""What ``keep_account`` is told of a new certificate for an account that has not changed: it is no history."""

"""Keeps beside the database what of it has to be mended, what is asked for again, and what waits for that.

It is a file of its own, made when something is found to be damaged: what tells of a damaged database must not be in it.
Every method blocks on the disk, opens the file and closes it again, since all of that is rare.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from sublet.migrations.damage import is_damage
from sublet.migrations.database import prepare
from sublet.migrations.schema import Schema
from sublet.protocol.ezagent.ids import RoomId

MAX_KEPT_BYTES: Final = 64 << 20
"""Updates that wait for what they build on; what is beyond is in the damaged file alone."""
MAX_TOLD: Final = 16
LOST_FILE: Final = "-lost.db"
"""Behind the name of the database, without its ending."""
_SCHEMA: Final = Schema(
    "what rooms have lost",
    1,
    (
        "CREATE TABLE due (kind TEXT NOT NULL, name TEXT NOT NULL, why TEXT NOT NULL, PRIMARY KEY (kind, name))",
        "CREATE TABLE lost (doc_id TEXT PRIMARY KEY, room_id TEXT, why TEXT NOT NULL, at INTEGER NOT NULL)",
        "CREATE TABLE kept (number INTEGER PRIMARY KEY, doc_id TEXT NOT NULL, envelope BLOB NOT NULL UNIQUE)",
        "CREATE TABLE told (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, what TEXT NOT NULL)",
    ),
)


class Part(StrEnum):
    """What of a database is damaged."""

    PAGES = "pages"
    """The file: it is made anew from what can be read."""
    ROWS = "rows"
    """Rows, it is not known which: all are looked at."""
    DOCUMENT = "document"
    """What is kept of one document: it is made anew from the log."""
    TREE = "tree"
    """What a room is compared by: what it says of documents that are gone is dropped, and what it sums up to is."""


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that has to be mended.

    Args:
        part: what it is.
        name: the document's id, the room's, or nothing.
        why: what is wrong with it, in words.
    """

    part: Part
    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Lost:
    """A document of which something is missing and asked for."""

    doc_id: str
    room_id: RoomId | None
    why: str
    at: float


class Losses:
    """See the module.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, *damages: Damage) -> None:
        """Have something mended when the database is opened next."""
        with self._opened() as db:
            db.executemany("INSERT OR REPLACE INTO due VALUES (?, ?, ?)", [(d.part, d.name, d.why) for d in damages])

    def due(self) -> list[Damage]:
        """Return what is to be mended."""
        if not self._path.exists():
            return []
        with self._opened() as db:
            return [Damage(Part(kind), name, why) for kind, name, why in db.execute("SELECT kind, name, why FROM due")]

    def mended(self, damages: Collection[Damage]) -> None:
        """Note that these are whole again, or as whole as can be."""
        with self._opened() as db:
            db.executemany("DELETE FROM due WHERE kind = ? AND name = ?", [(d.part, d.name) for d in damages])

    def lose(self, doc_id: str, room_id: RoomId | None, why: str, kept: Sequence[bytes] = ()) -> None:
        """Have a document asked for until nothing of it is missing.

        Args:
            doc_id: its id.
            room_id: its room.
            why: what is wrong with it, in words.
            kept: its updates that are here and build on what is missing.
        """
        with self._opened() as db:
            db.execute(
                "INSERT OR REPLACE INTO lost VALUES (?, ?, ?, ?)", (doc_id, room_id, why, time.time_ns() // 10**6)
            )
            (size,) = db.execute("SELECT coalesce(sum(length(envelope)), 0) FROM kept").fetchone()
            for raw in kept:
                size += len(raw)
                if size > MAX_KEPT_BYTES:
                    break
                db.execute("INSERT OR IGNORE INTO kept (doc_id, envelope) VALUES (?, ?)", (doc_id, raw))

    def lost(self) -> list[Lost]:
        """Return what is asked for."""
        if not self._path.exists():
            return []
        with self._opened() as db:
            rows = db.execute("SELECT doc_id, room_id, why, at FROM lost ORDER BY at, doc_id")
            return [Lost(doc_id, room_id, why, at / 1000) for doc_id, room_id, why, at in rows]

    def kept(self, doc_id: str) -> list[bytes]:
        """Return the updates of a document that wait for what they build on."""
        with self._opened() as db:
            rows = db.execute("SELECT envelope FROM kept WHERE doc_id = ? ORDER BY number", (doc_id,))
            return [bytes(raw) for (raw,) in rows]

    def found(self, doc_id: str, *, left: Sequence[bytes] = (), whole: bool) -> None:
        """Note what has come of a document.

        Args:
            doc_id: its id.
            left: what of ``kept`` waits still.
            whole: nothing is missing any more.
        """
        with self._opened() as db:
            still = set(left)
            rows = db.execute("SELECT number, envelope FROM kept WHERE doc_id = ?", (doc_id,)).fetchall()
            db.executemany("DELETE FROM kept WHERE number = ?", [(n,) for n, raw in rows if bytes(raw) not in still])
            if whole:
                db.execute("DELETE FROM lost WHERE doc_id = ?", (doc_id,))

    def tell(self, what: str) -> None:
        """Remember what people are told, of which the newest is kept."""
        with self._opened() as db:
            db.execute("INSERT INTO told (at, what) VALUES (?, ?)", (time.time_ns() // 10**6, what))
            db.execute(
                "DELETE FROM told WHERE number NOT IN (SELECT number FROM told ORDER BY number DESC LIMIT ?)",
                (MAX_TOLD,),
            )

    def told(self) -> list[tuple[float, str]]:
        """Return what people were told lately, with Unix seconds."""
        if not self._path.exists():
            return []
        with self._opened() as db:
            return [(at / 1000, str(what)) for at, what in db.execute("SELECT at, what FROM told ORDER BY number")]

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the file in one transaction; one that is damaged itself is put away, and everything looked at anew."""
        try:
            with self._connected() as db:
                yield db
        except sqlite3.DatabaseError as error:
            if is_damage(error):
                with suppress(OSError):
                    self._path.replace(self._path.with_name(f"{self._path.name}.damaged"))
                with self._connected() as db:
                    db.execute("INSERT INTO due VALUES (?, '', ?)", (Part.ROWS, "what tells of damage was damaged"))
            raise

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(self._path, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous=FULL")
            prepare(db, self._path, _SCHEMA)
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")

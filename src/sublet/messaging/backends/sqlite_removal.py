"""Rooms that are forgotten, on SQLite: removed in small steps, so that no message waits long for one."""

from __future__ import annotations

import sqlite3
from typing import Final

from sublet.messaging.backends.sqlite_search import SqliteSearch
from sublet.messaging.backends.sqlite_tree import SqliteTree
from sublet.messaging.ports.purge_store import Due
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.patterns import Pattern

MAX_FORGOTTEN: Final = 65_536
"""Rooms that are remembered as forgotten; of more, the oldest may be offered again."""
STEP_ROWS: Final = 1_000
_ROOM: Final = Pattern(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_BY_ROW: Final = ("log", "writes", "deletions", "contents")
_NAMES: Final = (
    "WITH RECURSIVE names(name) AS (SELECT min(name) FROM index_entries UNION ALL "
    "SELECT (SELECT min(name) FROM index_entries WHERE name > names.name) FROM names WHERE names.name IS NOT NULL) "
    "SELECT name FROM names WHERE name IS NOT NULL"
)
"""The names of indexes, without reading all entries."""


class SqliteRemoval:
    """See ``engine.removal_store.RemovalStore``.

    Args:
        db: the store's connection.
        search: forgets what messages have said.
        tree: forgets what rooms were compared by.
    """

    def __init__(self, db: sqlite3.Connection, search: SqliteSearch, tree: SqliteTree) -> None:
        self._db = db
        self._search = search
        self._tree = tree
        self._place = ("", "", "")
        """Up to where the entries of indexes were looked at."""

    def begin(self, room_id: RoomId) -> None:
        self._db.execute("INSERT OR REPLACE INTO forgotten VALUES (?, 1)", (room_id,))
        self._db.execute(
            "DELETE FROM forgotten WHERE due = 0 AND room_id IN "
            "(SELECT room_id FROM forgotten ORDER BY room_id DESC LIMIT -1 OFFSET ?)",
            (MAX_FORGOTTEN,),
        )
        self._place = ("", "", "")

    def step(self) -> bool:
        due = [str(room) for (room,) in self._db.execute("SELECT room_id FROM forgotten WHERE due = 1")]
        if not due:
            return False
        if any(self._some_of_document(room_id) for room_id in due):
            return True
        if any(self._tree.remove_some(room_id, STEP_ROWS) for room_id in due):
            return True
        self._db.executemany(
            "DELETE FROM purges_due WHERE due = ? AND room_id = ?", [(one, room) for one in Due for room in due]
        )
        for table in ("strangers", "usage", "roots", "due", "purged"):
            self._db.executemany(f"DELETE FROM {table} WHERE room_id = ?", [(room,) for room in due])  # noqa: S608
        if self._some_entries(frozenset(due)):
            return True
        self._db.execute("UPDATE forgotten SET due = 0")
        return False

    def forgotten(self) -> frozenset[RoomId]:
        return frozenset(str(room) for (room,) in self._db.execute("SELECT room_id FROM forgotten"))

    def is_forgotten(self, room_id: RoomId) -> bool:
        return self._db.execute("SELECT 1 FROM forgotten WHERE room_id = ?", (room_id,)).fetchone() is not None

    def forgive(self, room_id: RoomId) -> None:
        self._db.execute("DELETE FROM forgotten WHERE room_id = ?", (room_id,))

    def size(self, room_id: RoomId) -> int:
        return sum(
            self._db.execute(
                f"SELECT coalesce(sum(length({column})), 0) FROM {table} WHERE document IN "  # noqa: S608 - constants
                "(SELECT number FROM documents WHERE room_id = ?)",
                (room_id,),
            ).fetchone()[0]
            for table, column in (("log", "envelope"), ("contents", "raw"))
        )

    def _some_of_document(self, room_id: RoomId) -> bool:
        """Remove rows of one document, and the document once it has none; tell whether there was anything."""
        found = self._db.execute(
            "SELECT number, doc_id FROM documents WHERE room_id = ? LIMIT 1", (room_id,)
        ).fetchall()
        if not found:
            return False
        number, doc_id = found[0]
        removed = 0
        for table in _BY_ROW:
            removed += self._db.execute(
                f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE document = ? LIMIT ?)",  # noqa: S608
                (number, STEP_ROWS),
            ).rowcount
        removed += self._search.drop_some_of(number, STEP_ROWS)
        rows = self._db.execute("SELECT seq, clock FROM entries WHERE document = ? LIMIT ?", (number, STEP_ROWS))
        entries = [(number, *row) for row in rows]
        self._db.executemany("DELETE FROM entries WHERE document = ? AND seq = ? AND clock = ?", entries)
        if removed or entries:
            return True
        for table in ("clients", "forks", "afters"):
            self._db.execute(f"DELETE FROM {table} WHERE document = ?", (number,))  # noqa: S608 - constants
        self._db.execute("DELETE FROM documents WHERE number = ?", (number,))
        # What is found by a content that changes has its id for a key, and no room.
        key = doc_id.rpartition("/")[2]
        names = [name for (name,) in self._db.execute(_NAMES)]
        self._db.executemany("DELETE FROM index_entries WHERE name = ? AND key = ?", [(name, key) for name in names])
        return True

    def _some_entries(self, rooms: frozenset[RoomId]) -> bool:
        """Remove entries of indexes that name one of the rooms, of the next few; tell whether there are more."""
        rows = self._db.execute(
            "SELECT name, key, rank, value FROM index_entries WHERE (name, key, rank) > (?, ?, ?) "
            "ORDER BY name, key, rank LIMIT ?",
            (*self._place, STEP_ROWS),
        ).fetchall()
        gone = [row[:3] for row in rows if not rooms.isdisjoint(_ROOM.findall(f"{row[1]} {row[2]} {row[3]}"))]
        self._db.executemany("DELETE FROM index_entries WHERE name = ? AND key = ? AND rank = ?", gone)
        self._place = tuple(rows[-1][:3]) if len(rows) == STEP_ROWS else ("", "", "")
        return len(rows) == STEP_ROWS

"""What is purged, on SQLite.

``secure_delete`` is on for every connection that writes (``sqlite_file.py``), so what is deleted is overwritten in its
page; the write-ahead log, words that are found, and what SQLite leaves behind when it moves rows are looked after by
whoever erases (``erasing/``).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

from sublet.messaging.backends.remains import mark_of_content, mark_of_document
from sublet.messaging.backends.sqlite_search import SqliteSearch
from sublet.messaging.backends.sqlite_tree import SqliteTree
from sublet.messaging.ports.purge_store import Due, DueRow, Kind, PurgedRow
from sublet.messaging.ports.rows import DocumentRow
from sublet.protocol.ezagent.content import NAMING_KINDS, author_of
from sublet.protocol.ezagent.digest_tree import place_of
from sublet.protocol.ezagent.ids import ContentId, EntityId, RefId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.purge import Gone
from sublet.protocol.ezagent.yjs.update import ItemId

STEP_ROWS: Final = 1_000
DETACHED: Final = "purged"
"""The kind of a document whose rows are being removed; it is of no room, and its id is none of a document."""
_COLUMNS: Final = "kind, name, ref_id, author, what, by, at"


class SqlitePurges:
    """See ``ports.purge_store.PurgeStore``.

    Args:
        db: the store's connection.
        search: forgets words.
        tree: takes documents out of the digest trees of rooms.
    """

    def __init__(self, db: sqlite3.Connection, search: SqliteSearch, tree: SqliteTree) -> None:
        self._db = db
        self._search = search
        self._tree = tree
        self._rooms: set[RoomId] | None = None

    def forget(self) -> None:
        """Go back to what is durable, after a transaction that failed."""
        self._rooms = None

    def has_any(self, room_id: RoomId) -> bool:
        if self._rooms is None:
            self._rooms = {str(room) for (room,) in self._db.execute("SELECT DISTINCT room_id FROM purged")}
        return room_id in self._rooms

    def rows_of(self, room_id: RoomId, ref_id: RefId) -> list[PurgedRow]:
        if not self.has_any(room_id):
            return []
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM purged INDEXED BY purged_with WHERE room_id = ? AND ref_id = ?",  # noqa: S608 - a constant
            (room_id, ref_id),
        )
        return [_row(row) for row in rows]

    def rows_named(self, room_id: RoomId, kind: Kind, name: str) -> list[PurgedRow]:
        if not self.has_any(room_id):
            return []
        rows = self._db.execute(
            f"SELECT {_COLUMNS} FROM purged WHERE room_id = ? AND kind = ? AND name = ?",  # noqa: S608 - a constant
            (room_id, kind, name),
        )
        return [_row(row) for row in rows]

    def is_gone(self, room_id: RoomId, kind: Kind, name: str) -> bool:
        return self.has_any(room_id) and (
            self._db.execute(
                "SELECT 1 FROM purged WHERE room_id = ? AND kind = ? AND name = ? LIMIT 1", (room_id, kind, name)
            ).fetchone()
            is not None
        )

    def is_place_gone(self, room_id: RoomId, place: bytes) -> bool:
        return self.has_any(room_id) and (
            self._db.execute(
                "SELECT 1 FROM purged WHERE room_id = ? AND place = ? LIMIT 1", (room_id, place)
            ).fetchone()
            is not None
        )

    def put(self, room_id: RoomId, rows: Sequence[PurgedRow]) -> None:
        if rows and not self.has_any(room_id) and self._rooms is not None:
            self._rooms.add(room_id)
        self._db.executemany(
            "INSERT OR REPLACE INTO purged (room_id, kind, name, ref_id, author, what, by, at, place) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (room_id, one.kind, one.name, one.ref_id, one.author, one.what, one.by, one.at, _place(room_id, one))
                for one in rows
            ],
        )

    def drop(self, room_id: RoomId, rows: Sequence[PurgedRow]) -> None:
        self._db.executemany(
            "DELETE FROM purged WHERE room_id = ? AND kind = ? AND name = ? AND ref_id = ?",
            [(room_id, one.kind, one.name, one.ref_id) for one in rows],
        )

    def elements(self, room_id: RoomId, ref_id: RefId) -> list[tuple[DocumentRow, ItemId, EntityId]]:
        rows = self._db.execute(
            "SELECT d.number, d.doc_id, d.room_id, d.kind, e.client, e.clock, e.signer FROM entries e "
            "CROSS JOIN documents d ON d.number = e.document "
            "WHERE e.entry_id = ? AND d.kind = 'index' AND d.room_id = ? ORDER BY d.doc_id, e.client, e.clock",
            (ref_id, room_id),
        )
        return [(DocumentRow(*row[:4]), (row[4], row[5]), str(row[6])) for row in rows]

    def elements_with(self, room_id: RoomId, text: str) -> list[tuple[DocumentRow, ItemId, RefId]]:
        rows = self._db.execute(
            "SELECT d.number, d.doc_id, d.room_id, d.kind, e.client, e.clock, e.entry_id FROM documents d "
            "CROSS JOIN log l ON l.document = d.number CROSS JOIN entries e ON e.document = d.number AND e.seq = l.seq "
            "WHERE d.room_id = ? AND d.kind = 'index' AND instr(l.envelope, ?) > 0",
            (room_id, text.encode()),
        )
        return [(DocumentRow(*row[:4]), (row[4], row[5]), str(row[6])) for row in rows]

    def tombstones(self, room_id: RoomId, after: str, limit: int) -> list[str]:
        rows = self._db.execute(
            "SELECT doc_id FROM documents WHERE room_id = ? AND kind = 'purge' AND doc_id > ? ORDER BY doc_id LIMIT ?",
            (room_id, after, limit),
        )
        return [str(name) for (name,) in rows]

    def written_by(self, room_id: RoomId, signers: Sequence[EntityId]) -> list[str]:
        rows = self._db.execute(
            "SELECT DISTINCT d.doc_id FROM documents d CROSS JOIN clients c ON c.document = d.number "
            "WHERE d.room_id = ? AND d.kind = 'purge' AND c.signer IN (SELECT value FROM json_each(?)) "
            "ORDER BY d.doc_id",
            (room_id, json.dumps(list(signers))),
        )
        return [str(name) for (name,) in rows]

    def signers(self, room_id: RoomId) -> set[EntityId]:
        return set(self.begun(room_id))

    def begun(self, room_id: RoomId) -> dict[EntityId, int]:
        rows = self._db.execute(
            "SELECT c.signer, count(*) FROM documents d JOIN clients c ON c.document = d.number "
            "WHERE d.room_id = ? AND d.kind = 'purge' GROUP BY c.signer",
            (room_id,),
        )
        return {str(signer): int(count) for signer, count in rows}

    def refuses(self, room_id: RoomId, content_id: ContentId, raw: bytes) -> bool:
        rows = self.rows_named(room_id, Kind.CONTENT, content_id)
        return bool(rows) and author_of(raw) in {row.author for row in rows}

    def content_documents(self, room_id: RoomId, content_id: ContentId) -> list[tuple[int, bytes]]:
        rows = self._db.execute(
            "SELECT d.number, c.raw FROM documents d CROSS JOIN contents c ON c.document = d.number "  # noqa: S608
            f"WHERE d.room_id = ? AND d.kind IN {NAMING_KINDS} AND c.hash = ?",
            (room_id, bytes.fromhex(content_id.removeprefix("sha256:"))),
        )
        return [(int(number), bytes(raw)) for number, raw in rows]

    def erase_content(self, document: int, content_id: ContentId) -> None:
        row = (document, bytes.fromhex(content_id.removeprefix("sha256:")))
        for (raw,) in self._db.execute("SELECT raw FROM contents WHERE document = ? AND hash = ?", row).fetchall():
            self.put_due([DueRow(Due.DISK, "", f"{content_id}/{document}", mark_of_content(bytes(raw)))])
        self._db.execute("DELETE FROM contents WHERE document = ? AND hash = ?", row)

    def detach(self, doc_id: str, tombstone: str) -> None:
        row = self._db.execute("SELECT number FROM documents WHERE doc_id = ?", (doc_id,)).fetchone()
        if row is None:
            return
        number = int(row[0])
        if tombstone:
            self._tree.purge(number, tombstone)
        self._db.execute(
            "UPDATE documents SET doc_id = ?, room_id = NULL, kind = ? WHERE number = ?",
            (f"{DETACHED}/{number}", DETACHED, number),
        )
        # The id of a draft goes on to be used, so it says nothing.
        mark = mark_of_document(doc_id) if tombstone else b""
        self.put_due([DueRow(Due.ROWS, "", str(number)), DueRow(Due.DISK, "", doc_id, mark)])

    def erase_some(self, number: int) -> bool:
        removed = sum(
            self._db.execute(
                f"DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE document = ? LIMIT ?)",  # noqa: S608
                (number, STEP_ROWS),
            ).rowcount
            for table in ("log", "writes", "deletions", "contents")
        )
        if removed:
            return True
        for table in ("entries", "clients", "forks", "afters", "searched_until"):
            self._db.execute(f"DELETE FROM {table} WHERE document = ?", (number,))  # noqa: S608 - constants
        self._db.execute("DELETE FROM documents WHERE number = ? AND kind = ?", (number, DETACHED))
        return False

    def due(self, due: Due, limit: int) -> list[DueRow]:
        rows = self._db.execute("SELECT due, room_id, name, mark FROM purges_due WHERE due = ? LIMIT ?", (due, limit))
        return [DueRow(Due(kind), room_id, name, bytes(mark)) for kind, room_id, name, mark in rows]

    def put_due(self, rows: Sequence[DueRow]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO purges_due VALUES (?, ?, ?, ?)",
            [(one.due, one.room_id, one.name, one.mark) for one in rows],
        )

    def drop_due(self, rows: Sequence[DueRow]) -> None:
        self._db.executemany(
            "DELETE FROM purges_due WHERE due = ? AND room_id = ? AND name = ?",
            [(one.due, one.room_id, one.name) for one in rows],
        )

    # What only the file of the database knows.

    def checkpoint(self) -> bool:
        """Write the write-ahead log back and make it empty; tell whether nobody kept that from being done."""
        busy, _, _ = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def rewrite(self) -> None:
        """Write the whole file anew, without anything that was deleted; outside of a transaction."""
        self._db.execute("VACUUM")


def _row(row: tuple[str, ...]) -> PurgedRow:
    kind, name, ref_id, author, what, by, at = row
    return PurgedRow(Kind(kind), name, ref_id, author, Gone(what), by, at)


def _place(room_id: RoomId, row: PurgedRow) -> bytes | None:
    """Return where the leaf stood of a document that is gone."""
    if row.kind is Kind.DOCUMENT:
        return place_of(row.name)
    if row.kind is Kind.FILE:
        return place_of(doc_id("blob_ref", room_id=room_id, hash=row.name))
    return None

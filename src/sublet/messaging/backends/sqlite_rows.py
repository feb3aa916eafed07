"""What the tables of rooms hold, row by row, for whoever checks or mends them; rows may be anything here."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from sublet.messaging.backends.sqlite_sums import SqliteSums
from sublet.messaging.backends.sqlite_tree import SqliteTree
from sublet.messaging.ports.rows import DocumentRow, Fork
from sublet.protocol.ezagent.content import NAMING_KINDS, parse_content
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.identity import parse_record
from sublet.protocol.ezagent.ids import EntityId, RoomId

_OF_DOCUMENT: Final = {
    "log": "seq, client, start, until, head",
    "clients": "client, signer",
    "entries": ("client, clock, length, origin_client, origin_clock, right_client, right_clock, entry_id, signer, seq"),
    "writes": (
        "client, clock, entry_client, entry_clock, container_client, container_clock, key, origin_client, "
        "origin_clock, right_client, right_clock, signer, seq, value"
    ),
    "deletions": "client, clock, length, signer, seq",
}
"""What follows from the log of a document alone. What is shown follows from the room as well."""
_BATCH: Final = 512
_HASH_BYTES: Final = 32


def _record(row: sqlite3.Row) -> None:
    if parse_record(bytes(row["raw"])).entity_id != row["entity_id"]:
        raise ValueError("it is of somebody else")


def _content(row: sqlite3.Row) -> None:
    if len(row["hash"]) != _HASH_BYTES:
        return  # of a content that changes, whose id is no hash
    named = str(parse_content(bytes(row["raw"]))["content_id"])
    if bytes.fromhex(named.removeprefix("sha256:")) != bytes(row["hash"]):
        raise ValueError("it is another content")


def _json(column: str) -> Callable[[sqlite3.Row], None]:
    def check(row: sqlite3.Row) -> None:
        json.loads(row[column])

    return check


_CHECKS: Final[dict[str, tuple[tuple[str, ...], Callable[[sqlite3.Row], None]]]] = {
    "records": (("entity_id",), _record),
    "contents": (("number",), _content),
    "settings": (("name",), _json("value")),
    "events": (("cursor",), _json("data")),
    "index_entries": (("name", "key", "rank"), _json("value")),
}
"""Tables whose rows can be told to be torn by themselves, with what names a row."""
_TORN: Final = (Refused, ValueError, TypeError, KeyError, RecursionError, OverflowError)


class SqliteRows:
    """See the module.

    Args:
        db: a connection; only ``clear`` and ``drop`` write, inside a transaction.
        tree: sums up again what is removed; none for a connection that reads alone.
    """

    def __init__(self, db: sqlite3.Connection, tree: SqliteTree | None = None) -> None:
        self._db = db
        self._tree = tree

    def take_any_text(self) -> None:
        """Read text that is not UTF-8 with replacements from now on, so that it hides nothing beside it."""
        self._db.text_factory = lambda raw: raw.decode("utf-8", "replace")

    def sums(self) -> SqliteSums:
        """Return what compares these rows with what rooms are compared by."""
        return SqliteSums(self._db, self._tree or SqliteTree(self._db))

    def documents(self) -> list[DocumentRow]:
        """Return all documents, but not those of rooms that are being removed; configs first."""
        rows = self._db.execute(
            "SELECT number, doc_id, room_id, kind FROM documents "
            "WHERE kind != 'purged' AND "
            "(room_id IS NULL OR room_id NOT IN (SELECT room_id FROM forgotten WHERE due = 1)) "
            "ORDER BY kind != 'config', number"
        )
        return [DocumentRow(int(number), str(name), room, str(kind)) for number, name, room, kind in rows]

    def find(self, doc_id: str) -> DocumentRow | None:
        """Return a document, but none of a room that is being removed."""
        row = self._db.execute(
            "SELECT number, doc_id, room_id, kind FROM documents WHERE doc_id = ? "
            "AND (room_id IS NULL OR room_id NOT IN (SELECT room_id FROM forgotten WHERE due = 1))",
            (doc_id,),
        ).fetchone()
        return None if row is None else DocumentRow(int(row[0]), str(row[1]), row[2], str(row[3]))

    @contextmanager
    def moment(self) -> Iterator[None]:
        """Read everything inside as of one moment; for a connection that reads alone."""
        self._db.execute("BEGIN")
        try:
            yield
        finally:
            self._db.execute("COMMIT")

    def records(self) -> list[bytes]:
        """Return all records, of which one may prove nothing."""
        return [raw for (raw,) in self._db.execute("SELECT raw FROM records") if isinstance(raw, bytes)]

    def signers(self) -> list[EntityId]:
        """Return all who have written anything that is here."""
        return [str(signer) for (signer,) in self._db.execute("SELECT DISTINCT signer FROM clients")]

    def strays(self) -> list[int]:
        """Return numbers under which the log has updates of no document."""
        rows = self._db.execute(
            "SELECT DISTINCT document FROM log WHERE document NOT IN (SELECT number FROM documents)"
        )
        return [number for (number,) in rows if isinstance(number, int)]

    def forks(self, document: int) -> list[Fork]:
        """Return what is known of forks of a document."""
        rows = self._db.execute("SELECT client, clock, signer, one, other FROM forks WHERE document = ?", (document,))
        return [Fork(client, clock, signer, bytes(one), bytes(other)) for client, clock, signer, one, other in rows]

    def size(self, document: int) -> int:
        """Return how many bytes a document's envelopes have."""
        query = "SELECT coalesce(sum(length(envelope)), 0) FROM log WHERE document = ?"
        return int(self._db.execute(query, (document,)).fetchone()[0])

    def numbers(self, document: int) -> list[tuple[int, Any, Any, Any]]:
        """Return the numbers of a document's updates in the order of acceptance, with client, first and next clock."""
        rows = self._db.execute(
            "SELECT seq, client, start, until FROM log WHERE document = ? ORDER BY seq", (document,)
        )
        return [(int(seq), client, start, until) for seq, client, start, until in rows]

    def update(self, seq: int) -> bytes:
        """Return an envelope by its number; empty where it is gone meanwhile."""
        row = self._db.execute("SELECT envelope FROM log WHERE seq = ?", (seq,)).fetchone()
        return b"" if row is None else row[0] if isinstance(row[0], bytes) else str(row[0]).encode()

    def updates(self, document: int) -> list[tuple[int, bytes]]:
        """Return a document's envelopes with their numbers, in the order of acceptance; one may be no envelope."""
        rows = self._db.execute("SELECT seq, envelope FROM log WHERE document = ? ORDER BY seq", (document,))
        return [(int(seq), raw if isinstance(raw, bytes) else str(raw).encode()) for seq, raw in rows]

    def kept(self, document: int) -> dict[str, list[tuple[Any, ...]]]:
        """Return, by table, what is kept of a document, in an order of its own."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for table, columns in _OF_DOCUMENT.items():
            rows = self._db.execute(f"SELECT {columns} FROM {table} WHERE document = ?", (document,))  # noqa: S608
            found[table] = sorted(map(tuple, rows), key=repr)
        return found

    def has_content(self, room_id: RoomId | None, digest: bytes) -> bool:
        """Tell whether a content of a room is here."""
        return (
            self._db.execute(
                "SELECT 1 FROM documents d CROSS JOIN contents c ON c.document = d.number "  # noqa: S608
                f"WHERE d.room_id = ? AND d.kind IN {NAMING_KINDS} AND c.hash = ? LIMIT 1",
                (room_id, digest),
            ).fetchone()
            is not None
        )

    def is_purged(self, room_id: RoomId | None, content_id: str) -> bool:
        """Tell whether a content is gone for good, and not lost."""
        query = "SELECT 1 FROM purged WHERE room_id = ? AND kind = 'content' AND name = ? LIMIT 1"
        return self._db.execute(query, (room_id, content_id)).fetchone() is not None

    def torn(self) -> Iterator[tuple[str, tuple[Any, ...], bytes] | None]:
        """Yield rows that are torn by themselves (table, key, bytes), and None now and then, where one may wait."""
        for table, (keys, check) in _CHECKS.items():
            numbered = table in ("contents", "events")
            columns = ", ".join((*keys, "*"))
            after: tuple[Any, ...] = (-(2**63),) if numbered else ("",) * len(keys)
            while True:
                where = f"({', '.join(keys)}) > ({', '.join('?' * len(keys))})"
                cursor = self._db.execute(
                    f"SELECT {columns} FROM {table} WHERE {where} ORDER BY {', '.join(keys)} LIMIT ?",  # noqa: S608
                    (*after, _BATCH),
                )
                cursor.row_factory = sqlite3.Row
                rows = cursor.fetchall()
                for row in rows:
                    try:
                        check(row)
                    except _TORN:
                        yield table, tuple(row)[: len(keys)], repr(tuple(row)).encode()
                if len(rows) < _BATCH:
                    break
                after = tuple(rows[-1])[: len(keys)]
                yield None

    def drop(self, table: str, key: tuple[Any, ...]) -> None:
        """Remove a row that ``torn`` has named."""
        where = " AND ".join(f"{name} = ?" for name in _CHECKS[table][0])
        self._db.execute(f"DELETE FROM {table} WHERE {where}", key)  # noqa: S608 - names of ours

    def drop_document(self, number: int) -> None:
        """Remove what says of which document rows are."""
        if self._tree is not None:
            self._tree.drop(number)
        self._db.execute("DELETE FROM documents WHERE number = ?", (number,))

    def first_updates(self, number: int, limit: int) -> list[bytes]:
        """Return the first envelopes of a document."""
        rows = self._db.execute("SELECT envelope FROM log WHERE document = ? ORDER BY seq LIMIT ?", (number, limit))
        return [raw for (raw,) in rows if isinstance(raw, bytes)]

    def all_documents(self) -> list[DocumentRow]:
        """Return all documents, those of rooms that are being removed too."""
        rows = self._db.execute("SELECT number, doc_id, room_id, kind FROM documents WHERE kind != 'purged'")
        return [DocumentRow(int(number), str(name), room, str(kind)) for number, name, room, kind in rows]

    def adopt(self, number: int, doc_id: str, room_id: RoomId | None, kind: str) -> bool:
        """Give rows whose document is gone their document again; tell whether it has not been made anew meanwhile."""
        if self._db.execute("SELECT 1 FROM documents WHERE doc_id = ?", (doc_id,)).fetchone() is not None:
            return False
        self._db.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", (number, doc_id, room_id, kind))
        return True

    def move_contents(self, number: int, to: int) -> None:
        """Give the contents of rows whose document is gone to the one that was made anew."""
        self._db.execute("UPDATE OR IGNORE contents SET document = ? WHERE document = ?", (to, number))

    def clear(self, document: int) -> None:
        """Remove all that follows from the log of a document, and the log."""
        deleting = self._db.execute("SELECT envelope FROM log WHERE document = ? AND client IS NULL", (document,))
        gone = [raw for (raw,) in deleting if isinstance(raw, bytes)]
        for table in _OF_DOCUMENT:
            self._db.execute(f"DELETE FROM {table} WHERE document = ?", (document,))  # noqa: S608 - names of ours
        self._db.execute("DELETE FROM searched_until WHERE document = ?", (document,))
        if self._tree is not None:
            self._tree.taken_back(document, gone)

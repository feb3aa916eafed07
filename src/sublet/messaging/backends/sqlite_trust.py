"""What the store keeps about whom to trust: the chain of each client's updates, and forks of it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from typing import Final

from sublet.messaging.backends.rows import WRITE_COLUMNS, write_of
from sublet.messaging.backends.sqlite_search import SqliteSearch
from sublet.messaging.backends.sqlite_tree import SqliteTree
from sublet.messaging.ports.rows import Fork, WriteRow
from sublet.protocol.ezagent.digest_tree import Head
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.yjs.update import Deletion

MAX_DELETED: Final = 256
"""Writes that one deletion is told of."""
_FORK: Final = "client, clock, signer, one, other"


class SqliteTrust:
    """See ``engine.backend.TrustStore``.

    Args:
        db: the store's connection.
        search: looks again at what is rewound.
        tree: sums up again what is rewound.
    """

    def __init__(self, db: sqlite3.Connection, search: SqliteSearch, tree: SqliteTree) -> None:
        self._db = db
        self._search = search
        self._tree = tree

    def forks(self, document: int) -> list[Fork]:
        rows = self._db.execute(f"SELECT {_FORK} FROM forks WHERE document = ? ORDER BY client", (document,))  # noqa: S608
        return [Fork(client, clock, signer, bytes(one), bytes(other)) for client, clock, signer, one, other in rows]

    def put_fork(self, document: int, fork: Fork) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO forks VALUES (?, ?, ?, ?, ?, ?)",
            (document, fork.client, fork.clock, fork.signer, fork.one, fork.other),
        )

    def rewind(self, document: int, clocks: Mapping[int, int]) -> list[tuple[int, bytes]]:
        firsts = [
            self._db.execute(
                "SELECT min(seq) FROM log WHERE document = ? AND client = ? AND until > ?", (document, client, clock)
            ).fetchone()[0]
            for client, clock in clocks.items()
        ]
        first = min((seq for seq in firsts if seq is not None), default=None)
        if first is None:
            self._tree.taken_back(document, ())
            return []
        since = (document, first)
        rows = self._db.execute(
            "SELECT client, until, seq, envelope FROM log WHERE document = ? AND seq >= ? ORDER BY seq", since
        ).fetchall()
        kept = [
            (seq, bytes(raw)) for writer, until, seq, raw in rows if writer not in clocks or until <= clocks[writer]
        ]
        self._search.look_again(document)
        for table in ("log", "entries", "writes", "deletions"):
            self._db.execute(f"DELETE FROM {table} WHERE document = ? AND seq >= ?", since)  # noqa: S608 - constants
        self._db.execute(
            "DELETE FROM clients WHERE document = ? AND NOT EXISTS "
            "(SELECT 1 FROM log l WHERE l.document = clients.document AND l.client = clients.client)",
            (document,),
        )
        self._tree.taken_back(document, (bytes(raw) for writer, _, _, raw in rows if writer is None))
        return kept

    def update_at(self, document: int, client: int, clock: int) -> bytes | None:
        row = self._db.execute(
            "SELECT envelope FROM log WHERE document = ? AND client = ? AND until > ? ORDER BY until LIMIT 1",
            (document, client, clock),
        ).fetchone()
        return bytes(row[0]) if row is not None else None

    def head(self, document: int, client: int, until: int | None = None) -> bytes | None:
        if until is None:
            row = self._db.execute(
                "SELECT head FROM log WHERE document = ? AND client = ? ORDER BY until DESC LIMIT 1", (document, client)
            ).fetchone()
        else:
            row = self._db.execute(
                "SELECT head FROM log WHERE document = ? AND client = ? AND until = ? LIMIT 1",
                (document, client, until),
            ).fetchone()
        return bytes(row[0]) if row is not None else None

    def heads(self, document: int) -> dict[int, Head]:
        rows = self._db.execute(
            "SELECT l.client, l.until, l.head FROM clients c JOIN log l ON l.document = c.document "
            "AND l.client = c.client AND l.until = "
            "(SELECT max(until) FROM log m WHERE m.document = c.document AND m.client = c.client) "
            "WHERE c.document = ?",
            (document,),
        )
        return {client: Head(clock, bytes(digest)) for client, clock, digest in rows}

    def strangers(self, room_id: RoomId) -> dict[EntityId, tuple[int, int]]:
        rows = self._db.execute("SELECT signer, updates, size FROM strangers WHERE room_id = ?", (room_id,))
        return {signer: (updates, size) for signer, updates, size in rows}

    def put_stranger(self, room_id: RoomId, signer: EntityId, updates: int, size: int) -> None:
        if updates:
            self._db.execute("INSERT OR REPLACE INTO strangers VALUES (?, ?, ?, ?)", (room_id, signer, updates, size))
        else:
            self._db.execute("DELETE FROM strangers WHERE room_id = ? AND signer = ?", (room_id, signer))

    def writers(self, room_id: RoomId) -> set[EntityId]:
        rows = self._db.execute(
            "SELECT DISTINCT c.signer FROM documents d CROSS JOIN clients c ON c.document = d.number "
            "WHERE d.room_id = ? AND d.kind != 'config'",
            (room_id,),
        )
        return {str(signer) for (signer,) in rows}

    def documents_of(self, room_id: RoomId, is_theirs: Callable[[EntityId], bool]) -> int:
        of_room = "FROM documents d JOIN clients c ON c.document = d.number WHERE d.room_id = ?"
        signers = self._db.execute(f"SELECT DISTINCT c.signer {of_room}", (room_id,)).fetchall()
        theirs = json.dumps([signer for (signer,) in signers if is_theirs(signer)])
        (count,) = self._db.execute(
            f"SELECT count(DISTINCT c.document) {of_room} AND c.signer IN (SELECT value FROM json_each(?))",  # noqa: S608
            (room_id, theirs),
        ).fetchone()
        return int(count)

    def usage(self) -> dict[tuple[RoomId, str], int]:
        rows = self._db.execute("SELECT room_id, domain, size FROM usage")
        return {(room_id, domain): size for room_id, domain, size in rows}

    def put_usage(self, room_id: RoomId, home: str, size: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO usage VALUES (?, ?, ?)", (room_id, home, size))

    def is_deleted(self, document: int, signer: EntityId, cut: Deletion, before: int, last: int | None = None) -> bool:
        (found,) = self._db.execute(
            "SELECT EXISTS (SELECT 1 FROM (SELECT clock, length, seq FROM deletions WHERE document = ? AND client = ? "
            "AND signer = ? ORDER BY rowid DESC LIMIT ?) d CROSS JOIN log l ON l.seq = d.seq "
            "WHERE d.clock <= ? AND d.clock + d.length >= ? AND l.client IS NULL AND d.seq < ?)",
            (
                document,
                cut.client,
                signer,
                -1 if last is None else last,
                cut.clock,
                cut.clock + cut.length,
                before,
            ),
        ).fetchone()
        return bool(found)

    def writes_between(self, document: int, client: int, clock: int, length: int) -> list[WriteRow]:
        rows = self._db.execute(
            f"SELECT {WRITE_COLUMNS} FROM writes "  # noqa: S608 - a constant
            "WHERE document = ? AND client = ? AND clock >= ? AND clock < ? LIMIT ?",
            (document, client, clock, clock + length, MAX_DELETED),
        )
        return [write_of(row) for row in rows]

"""The ranks of messages on SQLite: where each stands in its room, and what it names of other shards."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from sublet.messaging.backends.rows import ENTRY_COLUMNS, entry_of
from sublet.messaging.ports.rows import AfterRow, DocumentRow, EntryRow
from sublet.protocol.ezagent.ids import RefId, RoomId
from sublet.protocol.ezagent.yjs.update import ItemId

MAX_HIDDEN_LAST: Final = 256
"""Elements that are not shown, of strangers say, past which the newest one that is shown is looked for."""


class SqliteRanks:
    """See ``ports.rank_store.RankStore``.

    Args:
        db: the store's connection.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def newest_ref(self, room_id: RoomId) -> RefId | None:
        rows = self._db.execute(
            "SELECT (SELECT max(seq) FROM entries e WHERE e.document = d.number), number "
            "FROM documents d WHERE room_id = ? AND kind = 'index'",
            (room_id,),
        )
        newest_first = sorted(((seq, number) for seq, number in rows if seq is not None), reverse=True)
        return next((found for _, number in newest_first if (found := self._newest_entry(number)) is not None), None)

    def of_room(self, room_id: RoomId) -> dict[str, tuple[int, int]]:
        rows = self._db.execute(
            "SELECT doc_id, (SELECT min(rank) FROM entries e WHERE e.document = d.number), "
            "(SELECT max(rank) FROM entries e WHERE e.document = d.number) "
            "FROM documents d WHERE room_id = ? AND kind = 'index'",
            (room_id,),
        )
        return {str(doc_id): (first, last) for doc_id, first, last in rows if first is not None}

    def of(self, document: int, item: ItemId) -> int | None:
        row = self._db.execute(
            "SELECT e.rank FROM entries e WHERE e.document = ?1 AND e.clock = ?3 AND e.client = ?2 AND e.seq = "
            "(SELECT seq FROM log WHERE document = ?1 AND client = ?2 AND until > ?3 ORDER BY until LIMIT 1)",
            (document, *item),
        ).fetchone()
        return int(row[0]) if row is not None else None

    def holding(self, document: int, item: ItemId) -> EntryRow | None:
        row = self._db.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE document = ?1 AND client = ?2 AND clock <= ?3 AND seq = "  # noqa: S608
            "(SELECT seq FROM log WHERE document = ?1 AND client = ?2 AND until > ?3 ORDER BY until LIMIT 1) "
            "ORDER BY clock DESC LIMIT 1",
            (document, *item),
        ).fetchone()
        return entry_of(row) if row is not None else None

    def named(self, document: int, entry_id: str) -> EntryRow | None:
        row = self._db.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE entry_id = ? AND document = ? "  # noqa: S608 - a constant
            "ORDER BY client, clock LIMIT 1",
            (entry_id, document),
        ).fetchone()
        return entry_of(row) if row is not None else None

    def afters(self, document: int) -> list[AfterRow]:
        rows = self._db.execute(
            "SELECT client, clock, after_doc, after_client, after_clock FROM afters WHERE document = ?", (document,)
        )
        return [AfterRow((row[0], row[1]), str(row[2]), (row[3], row[4])) for row in rows]

    def shards_after(self, doc_id: str) -> list[DocumentRow]:
        rows = self._db.execute(
            "SELECT DISTINCT d.number, d.doc_id, d.room_id, d.kind FROM afters a "
            "JOIN documents d ON d.number = a.document WHERE a.after_doc = ?",
            (doc_id,),
        )
        return [DocumentRow(*row) for row in rows]

    def put(self, document: int, entries: Iterable[EntryRow]) -> None:
        self._db.executemany(
            "UPDATE entries SET rank = ? WHERE document = ? AND seq = ? AND clock = ?",
            [(entry.rank, document, entry.seq, entry.clock) for entry in entries],
        )

    def _newest_entry(self, document: int) -> RefId | None:
        rows = self._db.execute(
            "SELECT entry_id, shown FROM entries WHERE document = ? ORDER BY seq DESC, clock DESC LIMIT ?",
            (document, MAX_HIDDEN_LAST),
        )
        return next((str(entry_id) for entry_id, shown in rows if shown), None)

"""The store on SQLite: one file, one writer, group commit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sublet.messaging.backends.rows import ENTRY_COLUMNS, WRITE_COLUMNS, entry_of, entry_values, write_of, write_values
from sublet.messaging.backends.sqlite_file import open_database
from sublet.messaging.backends.sqlite_invitations import SqliteInvitations
from sublet.messaging.backends.sqlite_purges import SqlitePurges
from sublet.messaging.backends.sqlite_ranks import SqliteRanks
from sublet.messaging.backends.sqlite_removal import SqliteRemoval
from sublet.messaging.backends.sqlite_rows import SqliteRows
from sublet.messaging.backends.sqlite_search import SqliteSearch
from sublet.messaging.backends.sqlite_tree import SqliteTree
from sublet.messaging.backends.sqlite_trust import SqliteTrust
from sublet.messaging.ports.rows import (
    Batch,
    DeletionRow,
    DocumentRow,
    EntryRow,
    EventRow,
    IndexEntry,
    StagedUpdate,
    WriteRow,
)
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.content import NAMING_KINDS
from sublet.protocol.ezagent.ids import ContentId, EntityId, RefId, RoomId, is_content_hash
from sublet.protocol.ezagent.yjs.update import Deletion, ItemId

MAX_DELETE_ONLY: Final = 1_000
"""Envelopes that only delete are in no state vector; so many of a document go with every difference, half the last."""
_NEXT: Final = "coalesce((SELECT max(until) FROM log l WHERE l.document = c.document AND l.client = c.client), 0)"
_DELETES_ONLY: Final = "document = ? AND client IS NULL AND until = 0"
"""What only deletes is of no clock; with that said, the index gives it in the order of the log."""
_DELETING: Final = f"SELECT seq FROM log WHERE {_DELETES_ONLY}"  # noqa: S608 - a constant
_DOCUMENT: Final = "SELECT number, doc_id, room_id, kind FROM documents"
PRUNE_EVERY: Final = 256
"""How many events come before those that are too old are deleted."""
LAST_RANK: Final = "\U0010ffff"
"""Beyond every rank of an index."""


class SqliteStore:
    """See ``engine.backend.Store``.

    Args:
        path: the database's file, made if it is missing; None keeps it in memory.

    Raises:
        SubletError: ``STATE_VERSION`` or ``UNAVAILABLE``: the file is of a version that can't be taken up.
    """

    def __init__(self, path: Path | None) -> None:
        self._db = open_database(path)
        self.ranks = SqliteRanks(self._db)
        self.search = SqliteSearch(self._db)
        self.tree = SqliteTree(self._db)
        self.trust = SqliteTrust(self._db, self.search, self.tree)
        self.purges = SqlitePurges(self._db, self.search, self.tree)
        self.removal = SqliteRemoval(self._db, self.search, self.tree)
        self.invitations = SqliteInvitations(self._db)

    def rows(self) -> SqliteRows:
        """Return the rows as they are, for whoever checks or mends them."""
        return SqliteRows(self._db, self.tree)

    def document(self, doc_id: str, room_id: RoomId | None, kind: str) -> DocumentRow:
        cursor = self._db.execute(
            "INSERT INTO documents (doc_id, room_id, kind) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (doc_id, room_id, kind),
        )
        if cursor.rowcount:
            return DocumentRow(int(cursor.lastrowid or 0), doc_id, room_id, kind)
        found = self.find_document(doc_id)
        assert found is not None, "it is there"
        return found

    def find_document(self, doc_id: str) -> DocumentRow | None:
        row = self._db.execute(f"{_DOCUMENT} WHERE doc_id = ?", (doc_id,)).fetchone()
        return DocumentRow(*row) if row is not None else None

    def numbered(self, number: int) -> DocumentRow | None:
        row = self._db.execute(f"{_DOCUMENT} WHERE number = ?", (number,)).fetchone()
        return DocumentRow(*row) if row is not None else None

    def documents(self, room_id: RoomId, kind: str) -> list[DocumentRow]:
        rows = self._db.execute(
            "SELECT number, doc_id, room_id, kind FROM documents WHERE room_id = ? AND kind = ? ORDER BY doc_id",
            (room_id, kind),
        )
        return [DocumentRow(*row) for row in rows]

    def rooms(self) -> list[RoomId]:
        rows = self._db.execute(
            "SELECT room_id FROM documents WHERE kind = 'config' "
            "AND room_id NOT IN (SELECT room_id FROM forgotten) ORDER BY number"
        )
        return [str(room_id) for (room_id,) in rows]

    def clients(self, document: int) -> dict[int, tuple[int, EntityId]]:
        rows = self._db.execute(f"SELECT client, {_NEXT}, signer FROM clients c WHERE document = ?", (document,))  # noqa: S608
        return {client: (clock, signer) for client, clock, signer in rows}

    def clients_of(self, room_id: RoomId, signer: EntityId | None) -> dict[str, dict[int, int]]:
        rows = self._db.execute(
            f"SELECT d.doc_id, c.client, {_NEXT} FROM documents d JOIN clients c ON c.document = d.number "  # noqa: S608
            "WHERE d.room_id = ? AND (? IS NULL OR c.signer = ?)",
            (room_id, signer, signer),
        )
        found: dict[str, dict[int, int]] = {}
        for doc_id, client, clock in rows:
            found.setdefault(doc_id, {})[client] = clock
        return found

    def has_entries(self, document: int) -> bool:
        (found,) = self._db.execute("SELECT EXISTS (SELECT 1 FROM entries WHERE document = ?)", (document,)).fetchone()
        return bool(found)

    def count_entries(self, document: int) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM entries WHERE document = ?", (document,)).fetchone()
        return int(count)

    def entries(self, document: int) -> list[EntryRow]:
        rows = self._db.execute(
            f"SELECT {ENTRY_COLUMNS} FROM entries WHERE document = ? ORDER BY seq, clock",  # noqa: S608 - a constant
            (document,),
        )
        return [entry_of(row) for row in rows]

    def find_entry(self, entry_id: RefId) -> tuple[DocumentRow, ItemId] | None:
        return self.find_refs([entry_id]).get(entry_id)

    def find_refs(self, ref_ids: Iterable[RefId]) -> dict[RefId, tuple[DocumentRow, ItemId]]:
        found: dict[RefId, tuple[DocumentRow, ItemId]] = {}
        for ref_id in ref_ids:
            row = self._db.execute(
                "SELECT d.number, d.doc_id, d.room_id, d.kind, e.client, e.clock FROM entries e "
                "JOIN documents d ON d.number = e.document WHERE e.entry_id = ? AND d.kind = 'index' "
                "ORDER BY d.doc_id, e.client, e.clock LIMIT 1",
                (ref_id,),
            ).fetchone()
            if row is not None:
                found[ref_id] = DocumentRow(*row[:4]), (row[4], row[5])
        return found

    def hidden_entries(self, signers: Iterable[EntityId]) -> list[tuple[DocumentRow, EntryRow]]:
        found: list[tuple[DocumentRow, EntryRow]] = []
        for signer in signers:
            rows = self._db.execute(
                f"SELECT d.number, d.doc_id, d.room_id, d.kind, {_prefixed('e', ENTRY_COLUMNS)} FROM entries e "  # noqa: S608
                "JOIN documents d ON d.number = e.document WHERE e.signer = ? AND e.shown = 0 ORDER BY e.seq, e.clock",
                (signer,),
            )
            found += [(DocumentRow(*row[:4]), entry_of(row[4:])) for row in rows]
        return found

    def mark_shown(self, items: Iterable[tuple[int, ItemId]]) -> None:
        self._db.executemany(
            "UPDATE entries SET shown = 1 WHERE document = ?1 AND client = ?2 AND clock = ?3 AND seq = "
            "(SELECT seq FROM log WHERE document = ?1 AND client = ?2 AND until > ?3 ORDER BY until LIMIT 1)",
            [(document, *item) for document, item in items],
        )

    def writes(self, document: int, entry: ItemId | None) -> list[WriteRow]:
        if entry is None:
            rows = self._db.execute(
                f"SELECT {WRITE_COLUMNS} FROM writes "  # noqa: S608
                "WHERE document = ? AND entry_client IS NULL AND entry_clock IS NULL ORDER BY number",
                (document,),
            )
        else:
            rows = self._db.execute(
                f"SELECT {WRITE_COLUMNS} FROM writes "  # noqa: S608
                "WHERE document = ? AND entry_client = ? AND entry_clock = ? ORDER BY number",
                (document, *entry),
            )
        return [write_of(row) for row in rows]

    def find_write(self, document: int, item: ItemId) -> WriteRow | None:
        row = self._db.execute(
            f"SELECT {WRITE_COLUMNS} FROM writes WHERE document = ? AND client = ? AND clock = ?",  # noqa: S608 - a constant
            (document, *item),
        ).fetchone()
        return write_of(row) if row is not None else None

    def deletions(self, document: int, clients: Iterable[int]) -> list[DeletionRow]:
        found: list[DeletionRow] = []
        for client in clients:
            rows = self._db.execute(
                "SELECT clock, length, signer FROM deletions WHERE document = ? AND client = ?", (document, client)
            )
            found += [DeletionRow(Deletion(client, clock, length), signer) for clock, length, signer in rows]
        return found

    def envelope(self, seq: int) -> bytes:
        (raw,) = self._db.execute("SELECT envelope FROM log WHERE seq = ?", (seq,)).fetchone()
        return bytes(raw)

    def updates_after(self, document: int, have: dict[int, int], limit_bytes: int) -> tuple[list[bytes], bool]:
        wanted: list[int] = []
        for client, (clock, _) in self.clients(document).items():
            if have.get(client, 0) < clock:
                rows = self._db.execute(
                    "SELECT seq FROM log WHERE document = ? AND client = ? AND until > ?",
                    (document, client, have.get(client, 0)),
                )
                wanted += [seq for (seq,) in rows]
        found: list[bytes] = []
        for seq in sorted(wanted):
            raw = self.envelope(seq)
            limit_bytes -= len(raw)
            if limit_bytes < 0 and found:
                return found, True
            found.append(raw)
        return found, False

    def log_after(self, document: int, have: dict[int, int], limit_bytes: int) -> tuple[list[bytes], bool]:
        found, more = self.updates_after(document, have, limit_bytes)
        if more:
            return found, True
        limit_bytes -= sum(map(len, found))
        # What only deletes is beyond every vector, so it comes again each time: last, so that it keeps nothing back.
        latest = self._db.execute(f"{_DELETING} ORDER BY seq DESC LIMIT ?", (document, MAX_DELETE_ONLY)).fetchall()
        if len(latest) == MAX_DELETE_ONLY:  # whoever asks again and again gets the older ones too
            latest[MAX_DELETE_ONLY // 2 :] = self._db.execute(
                f"{_DELETING} AND seq < ? ORDER BY random() LIMIT ?",
                (document, *latest[MAX_DELETE_ONLY // 2 - 1], MAX_DELETE_ONLY // 2),
            ).fetchall()
        deleting: list[bytes] = []
        for (seq,) in latest:
            raw = self.envelope(seq)
            limit_bytes -= len(raw)
            if limit_bytes < 0 and found:
                return found, True
            if limit_bytes < 0 and deleting:
                break
            deleting.append(raw)
        return found + deleting[::-1], False

    def deleting_after(self, document: int, seq: int, limit: int) -> list[tuple[int, bytes]]:
        rows = self._db.execute(
            f"SELECT seq, envelope FROM log WHERE {_DELETES_ONLY} AND seq > ? ORDER BY seq LIMIT ?",  # noqa: S608
            (document, seq, limit),
        )
        return [(number, bytes(raw)) for number, raw in rows]

    def last_seq(self) -> int:
        (seq,) = self._db.execute("SELECT coalesce(max(seq), 0) FROM log").fetchone()
        return int(seq)

    def content(self, room_id: RoomId, content_id: ContentId, document: int | None = None) -> bytes | None:
        digest, row = _hash(content_id), None
        if document is not None:
            row = self._db.execute(
                "SELECT raw FROM contents WHERE document = ? AND hash = ?", (document, digest)
            ).fetchone()
        if row is None:
            row = self._db.execute(
                f"SELECT c.raw FROM documents d CROSS JOIN contents c ON c.document = d.number "  # noqa: S608 - constants
                f"WHERE d.room_id = ? AND d.kind IN {NAMING_KINDS} AND c.hash = ? LIMIT 1",
                (room_id, digest),
            ).fetchone()
        return bytes(row[0]) if row is not None else None

    def records(self) -> dict[EntityId, bytes]:
        return {entity: bytes(raw) for entity, raw in self._db.execute("SELECT entity_id, raw FROM records")}

    def setting(self, name: str) -> JsonValue:
        row = self._db.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        value: JsonValue = json.loads(row[0]) if row is not None else None
        return value

    @property
    def in_transaction(self) -> bool:
        return self._db.in_transaction

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # where the disk is full SQLite has gone back already
                self._db.execute("ROLLBACK")
            self.tree.forget()
            self.purges.forget()
            raise

    def write(self, batch: Batch) -> None:
        if batch.updates:
            self._write_updates(batch.updates)
        if batch.contents:
            self._db.executemany(
                "INSERT OR IGNORE INTO contents (document, hash, raw) VALUES (?, ?, ?)",
                [(document, _hash(content), raw) for (document, content), raw in batch.contents.items()],
            )
        if batch.records:
            self._db.executemany("INSERT OR REPLACE INTO records VALUES (?, ?)", batch.records.items())
        if batch.settings:
            self._db.executemany(
                "INSERT OR REPLACE INTO settings VALUES (?, ?)",
                [(name, json.dumps(value)) for name, value in batch.settings.items()],
            )

    def _write_updates(self, updates: Sequence[StagedUpdate]) -> None:
        db, log, clients, entries, writes, deletions = self._db, [], [], [], [], []
        for update in updates:
            number, row = update.document.number, update.log
            log.append((row.seq, number, row.client, row.start, row.end, row.envelope, row.head))
            if update.first:
                clients.append((number, row.client, update.signer))
            entries += [(number, *entry_values(entry)) for entry in update.entries]
            writes += [(number, *write_values(write)) for write in update.writes]
            deletions += [
                (number, cut.deletion.client, cut.deletion.clock, cut.deletion.length, cut.signer, row.seq)
                for cut in update.deletions
            ]
        db.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", log)
        self.tree.changed(updates)
        if clients:
            db.executemany("INSERT INTO clients VALUES (?, ?, ?)", clients)
        db.executemany(
            f"INSERT INTO entries (document, {ENTRY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            entries,
        )
        afters = [(u.document.number, *a.item, a.doc_id, *a.after) for u in updates for a in u.afters]
        if afters:
            db.executemany("INSERT OR REPLACE INTO afters VALUES (?, ?, ?, ?, ?, ?)", afters)
        if writes:
            db.executemany(
                f"INSERT INTO writes (document, {WRITE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                writes,
            )
        superseded = [
            (update.document.number, *item, update.signer) for update in updates for item in update.superseded
        ]
        if superseded:  # a map stays, since what stands in it names it
            db.executemany(
                "DELETE FROM writes "
                "WHERE document = ? AND client = ? AND clock = ? AND signer = ? AND value IS NOT NULL",
                superseded,
            )
        if deletions:
            db.executemany("INSERT INTO deletions VALUES (?, ?, ?, ?, ?, ?)", deletions)

    def append_events(self, events: Sequence[EventRow], keep: int) -> None:
        self._db.executemany(
            "INSERT INTO events VALUES (?, ?, ?, ?)",
            [(event.cursor, event.kind, event.room_id, json.dumps(event.data)) for event in events],
        )
        first, last = events[0].cursor, events[-1].cursor
        if (first - 1) // PRUNE_EVERY != last // PRUNE_EVERY:
            self._db.execute("DELETE FROM events WHERE cursor <= ?", (last - keep,))

    def events(self, after: int, limit: int) -> list[EventRow]:
        rows = self._db.execute(
            "SELECT cursor, kind, room_id, data FROM events WHERE cursor > ? ORDER BY cursor LIMIT ?", (after, limit)
        )
        return [EventRow(cursor, kind, room_id, json.loads(data)) for cursor, kind, room_id, data in rows]

    def last_cursor(self) -> int:
        (cursor,) = self._db.execute("SELECT coalesce(max(cursor), 0) FROM events").fetchone()
        return int(cursor)

    def put_index(self, entries: Sequence[IndexEntry]) -> None:
        self._db.executemany(
            "INSERT OR REPLACE INTO index_entries VALUES (?, ?, ?, ?)",
            [(entry.index, entry.key, entry.rank, json.dumps(entry.value)) for entry in entries],
        )

    def scan_index(self, index: str, key: str, limit: int, below: str | None = None) -> list[IndexEntry]:
        rows = self._db.execute(
            "SELECT name, key, rank, value FROM index_entries WHERE name = ? AND key = ? AND rank < ? "
            "ORDER BY rank DESC LIMIT ?",
            (index, key, LAST_RANK if below is None else below, limit),
        )
        return [IndexEntry(name, found, rank, json.loads(value)) for name, found, rank, value in rows]

    def drop_index(self, index: str, key: str, rank: str) -> None:
        self._db.execute("DELETE FROM index_entries WHERE name = ? AND key = ? AND rank = ?", (index, key, rank))

    def close(self) -> None:
        self._db.close()


def _hash(content_id: ContentId) -> bytes:
    """Return what a content's id says, in a quarter of the space; ids of another form are of no immutable content."""
    return bytes.fromhex(content_id.removeprefix("sha256:")) if is_content_hash(content_id) else content_id.encode()


def _prefixed(table: str, columns: str) -> str:
    return ", ".join(f"{table}.{column}" for column in columns.split(", "))

"""Rows of rooms as they are, for whoever checks or mends them: torn ones are named, and nothing else."""

from __future__ import annotations

from sublet.messaging.backends.sqlite_rows import SqliteRows
from sublet.messaging.backends.sqlite_store import SqliteStore
from support.rooms import local_entity


def test_torn_rows_are_named_and_dropped_one_by_one() -> None:
    store = SqliteStore(None)
    rows: SqliteRows = store.rows()
    record = local_entity("alice", 1).record
    with store.transaction():
        store._db.execute("INSERT INTO records VALUES (?, ?)", (record.entity_id, record.encode()))
        store._db.execute("INSERT INTO records VALUES ('@odd:x', ?)", (record.encode(),))
        store._db.executemany("INSERT INTO settings VALUES (?, ?)", [("good", "{}"), ("odd", "{")])
        store._db.executemany(
            "INSERT INTO events VALUES (?, 'k', NULL, ?)",
            [(number, "{}" if number != 700 else "") for number in range(1, 999)],
        )
        store._db.execute("INSERT INTO contents VALUES (1, 1, ?, ?)", (b"h" * 32, b"{}"))
        store._db.execute("INSERT INTO contents VALUES (2, 1, ?, ?)", (b"of a content that changes", b"{}"))
    torn = [one for one in rows.torn() if one is not None]
    assert [one[:2] for one in torn] == [
        ("records", ("@odd:x",)), ("contents", (1,)), ("settings", ("odd",)), ("events", (700,)),
    ]  # fmt: skip
    with store.transaction():
        for table, key, _ in torn:
            rows.drop(table, key)
    assert [one for one in rows.torn() if one is not None] == []
    store.close()


def test_updates_of_no_document_are_found_and_given_back() -> None:
    store = SqliteStore(None)
    rows = store.rows()
    with store.transaction():
        store._db.execute("INSERT INTO log VALUES (1, 7, 3, 0, 1, x'00', x'00')")
    assert rows.strays() == [7]
    with store.transaction():
        assert rows.adopt(7, "ezagent/x/config", "x", "config")
        assert not rows.adopt(8, "ezagent/x/config", "x", "config")
    assert rows.strays() == []
    assert [(row.number, row.doc_id) for row in rows.documents()] == [(7, "ezagent/x/config")]
    assert (rows.size(7), rows.numbers(7), rows.update(1), rows.update(2)) == (1, [(1, 3, 0, 1)], b"\0", b"")
    with store.transaction():
        rows.clear(7)
    assert rows.kept(7) == {table: [] for table in ("log", "clients", "entries", "writes", "deletions")}
    store.close()

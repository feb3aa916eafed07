"""Digests that do not say what the log says are found in slices, and mended."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.protocol.ezagent.reconciliation import MAX_LISTED
from support.digests import write_documents

ROOM = "0190a7c2-0000-7000-8000-000000000001"
OTHER = "0190a7c2-0000-7000-8000-000000000002"


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "m.db")
    write_documents(store, ROOM, 20 * MAX_LISTED)
    write_documents(store, OTHER, 5)
    return store


def wrong(store: SqliteStore) -> set[tuple[str | None, bool]]:
    """Return in which rooms something is wrong, and whether its document is named."""
    return {(one.room_id, bool(one.doc_id)) for one in store.rows().sums().wrong() if one is not None}


def test_what_was_written_is_what_it_sums_up_to_and_nobody_waits_long(store: SqliteStore) -> None:
    assert wrong(store) == set()
    assert [*store.rows().sums().wrong()].count(None) >= 20, "it is looked at in slices"
    assert [*store.rows().sums().newest(8)] == []


def test_documents_that_are_gone_are_dropped_from_what_a_room_sums_up_to(store: SqliteStore) -> None:
    before, there = store.tree.root(ROOM), store.documents(ROOM, "ext")
    db = sqlite3.connect(store.rows()._db.execute("PRAGMA database_list").fetchone()[2])
    for row in there[:3]:
        for table, column in (("documents", "number"), ("log", "document"), ("clients", "document")):
            db.execute(f"DELETE FROM {table} WHERE {column} = ?", (row.number,))
    db.commit()
    assert wrong(store) == {(ROOM, False)}
    with store.transaction():
        store.rows().sums().mend(ROOM)
    assert wrong(store) == set()
    assert store.tree.root(ROOM).count == before.count - 3


def test_a_sum_that_is_none_is_summed_up_again(store: SqliteStore) -> None:
    before = store.tree.root(ROOM)
    for change in ("UPDATE nodes SET count = count + 1 WHERE prefix = x'00'", "UPDATE nodes SET digest = zeroblob(32)"):
        store.rows()._db.execute(change)
        assert wrong(store) == {(ROOM, False)}
        with store.transaction():
            store.rows().sums().mend(ROOM)
        assert (wrong(store), store.tree.root(ROOM)) == (set(), before)


def test_a_room_that_is_being_removed_is_left_alone(store: SqliteStore) -> None:
    store.rows()._db.execute("DELETE FROM log")
    store.rows()._db.execute("INSERT INTO forgotten VALUES (?, 1)", (ROOM,))
    assert wrong(store) == {(OTHER, True)}

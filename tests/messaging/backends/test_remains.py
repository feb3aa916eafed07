"""What SQLite leaves of rows that were erased is found, in the database and in copies of it beside it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from sublet.messaging.backends import remains
from sublet.messaging.backends.remains import (
    CHUNK_BYTES,
    drop_kept,
    files_beside,
    holds,
    mark_of_content,
    mark_of_document,
)
from sublet.messaging.backends.sqlite_purges import SqlitePurges
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.ports.purge_store import Due
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import NOW_MS, Peer, entity_key

RAW = b'{"author":"@a:x","body":"Xenophon","content_id":"sha256:00","signature":"ed25519:00"}'


def test_a_content_is_found_wherever_it_stands_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    for before in (0, CHUNK_BYTES - 30, CHUNK_BYTES + 5):
        path.write_bytes(bytes(before) + RAW + bytes(99))
        assert holds(path, {mark_of_content(RAW)})
        assert not holds(path, {mark_of_content(RAW.replace(b"Xen", b"Zen"))})
    assert not holds(tmp_path / "nothing", {mark_of_content(RAW)})


def test_an_envelope_of_a_document_is_found_and_the_name_alone_is_none(tmp_path: Path) -> None:
    name = doc_id("config", room_id="01901f2c-7b3a-7c3d-8e4f-0123456789ab")
    envelope = seal(entity_key("a"), "@a:x", name, NOW_MS, b"payload").raw
    path = tmp_path / "f"
    path.write_bytes(b"..." + envelope)
    assert holds(path, {mark_of_document(name)})
    path.write_bytes(b"a row that names " + name.encode())
    assert not holds(path, {mark_of_document(name)})


def test_copies_of_the_database_and_what_was_set_aside_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "messaging.db"
    (tmp_path / remains.SET_ASIDE).mkdir()
    wanted = [
        path.with_name("messaging.db.v13"),
        path.with_name("messaging.db.damaged-1"),
        tmp_path / remains.SET_ASIDE / "row",
    ]
    for one in [*wanted, path, tmp_path / "sublet.db.v9"]:
        one.write_bytes(b"x")
    assert sorted(files_beside(path)) == sorted(wanted)


def test_updates_that_wait_beside_the_database_are_forgotten(tmp_path: Path) -> None:
    path, lost = tmp_path / "messaging.db", tmp_path / "messaging-lost.db"
    drop_kept(path, ["gone"])
    assert not lost.exists()
    with closing(sqlite3.connect(lost, isolation_level=None)) as db:
        db.execute("CREATE TABLE kept (number INTEGER PRIMARY KEY, doc_id TEXT, envelope BLOB)")
        db.execute("CREATE TABLE lost (doc_id TEXT PRIMARY KEY)")
        db.execute("INSERT INTO kept (doc_id, envelope) VALUES ('gone', 'Xenophon'), ('stays', 'x')")
    drop_kept(path, ["gone"])
    with closing(sqlite3.connect(lost)) as db:
        assert db.execute("SELECT doc_id FROM kept").fetchall() == [("stays",)]
    assert b"Xenophon" not in lost.read_bytes()


def test_a_document_that_is_detached_is_in_no_room_and_its_rows_go_in_steps() -> None:
    alice = Peer("alice", 1)
    room = alice.do("room.create", name="r")["room_id"]
    name = doc_id("config", room_id=room)
    store: SqliteStore = alice.store
    purges: SqlitePurges = store.purges
    row = store.find_document(name)
    assert row is not None
    with store.transaction():
        purges.detach(name, name)
    assert store.find_document(name) is None
    assert store.tree.root(room).count == 0
    assert [one.name for one in purges.due(Due.ROWS, 9)] == [str(row.number)]
    assert [one.mark for one in purges.due(Due.DISK, 9)] == [mark_of_document(name)]
    assert all(one.doc_id != name for one in store.rows().all_documents())
    with store.transaction():
        while purges.erase_some(row.number):
            pass
    assert store.rows().updates(row.number) == []
    assert store.numbered(row.number) is None

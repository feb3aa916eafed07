"""Rooms of many documents in a store, made without anybody who signs."""

from __future__ import annotations

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.ports.rows import Batch, LogRow, StagedUpdate
from sublet.protocol.ezagent.keys import doc_id

WRITER = "@alice:example"


def write_documents(store: SqliteStore, room: str, count: int) -> None:
    """Write an update into each of so many documents of a room."""
    with store.transaction():
        for number in range(count):
            name = doc_id("ext", room_id=room, ext_id=f"x{number}")
            row = store.document(name, room, "ext")
            log = LogRow(store.last_seq() + 1, 7, 0, 3, b"x", bytes([number % 250]) * 16)
            store.write(Batch([StagedUpdate(row, log, WRITER, True)]))

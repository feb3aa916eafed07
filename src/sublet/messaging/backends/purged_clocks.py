"""How much was written in documents that are gone by a tombstone, kept by the tombstone's document."""

from __future__ import annotations

import json
import sqlite3
from typing import Final

from sublet.protocol.ezagent.digest_tree import NOTHING, Node
from sublet.protocol.ezagent.ids import RoomId

_INDEX: Final = "purged_clocks"
_TOMBSTONE: Final = "/ext/purge/"


def purged_clocks(db: sqlite3.Connection, name: str) -> Node:
    """Return what the leaf of a tombstone's document says in place of what is gone; nothing for other documents."""
    if _TOMBSTONE not in name:
        return NOTHING
    row = db.execute(
        "SELECT value FROM index_entries WHERE name = ? AND key = ? AND rank = ?", (_INDEX, name.split("/")[1], name)
    ).fetchone()
    return Node(0, int(json.loads(row[0])["clocks"]), 0) if row is not None else NOTHING


def add_purged_clocks(db: sqlite3.Connection, room_id: RoomId, tombstone: str, clocks: int) -> None:
    """Note that so much more is gone by a tombstone; inside a transaction."""
    told = json.dumps({"clocks": purged_clocks(db, tombstone).clocks + clocks})
    db.execute("INSERT OR REPLACE INTO index_entries VALUES (?, ?, ?, ?)", (_INDEX, room_id, tombstone, told))

"""What events refer to by digest, kept as long as one of these events is (SuperAgent 12, DESIGN 7)."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Final

from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import Document, unpacked

MAX_KEPT_BYTES: Final = 64 * 1024 * 1024
"""Of all documents, packed; beyond it those go that no event has named for longest."""
NOTED_EVERY: Final = 500
"""By how many events the note may lag that says which event names a document: each use costs no write."""
MAX_READ: Final = 2_000
"""Documents that are read at once."""


def keep(connection: sqlite3.Connection, document: Document, seq: int) -> None:
    """Keep ``document`` for the event ``seq``, once however often it is named."""
    row = connection.execute("SELECT last_event FROM documents WHERE digest = ?", (document.digest,)).fetchone()
    if row is not None:
        if row["last_event"] <= seq - NOTED_EVERY:
            connection.execute("UPDATE documents SET last_event = ? WHERE digest = ?", (seq, document.digest))
        return
    connection.execute(
        "INSERT INTO documents (digest, packed, bytes, last_event) VALUES (?, ?, ?, ?)",
        (document.digest, document.packed, len(document.packed), seq),
    )
    if connection.execute("SELECT sum(bytes) FROM documents").fetchone()[0] > MAX_KEPT_BYTES:
        connection.execute(
            """DELETE FROM documents WHERE digest IN (SELECT digest FROM (SELECT digest,
                sum(bytes) OVER (ORDER BY last_event DESC, digest) AS total FROM documents) WHERE total > ?)""",
            (MAX_KEPT_BYTES,),
        )


def drop_unused(connection: sqlite3.Connection, oldest: int) -> None:
    """Drop what only events before ``oldest`` can have named."""
    connection.execute("DELETE FROM documents WHERE last_event + ? < ?", (NOTED_EVERY, oldest))


def kept(connection: sqlite3.Connection, digests: Collection[str]) -> dict[str, JsonValue]:
    """Return what is kept under these digests; what is not there, or damaged, is left out."""
    found: dict[str, JsonValue] = {}
    for digest in list(digests)[:MAX_READ]:
        row = connection.execute("SELECT packed FROM documents WHERE digest = ?", (digest,)).fetchone()
        if row is None:
            continue
        try:
            found[digest] = unpacked(Document(digest, row["packed"]))
        except ValueError:
            continue
    return found

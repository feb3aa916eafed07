"""The tables of the messaging database. A change of them raises ``SCHEMA_VERSION`` and adds a migration.

Every table and index that a message adds to is one more page in each commit, so what the log tells is kept nowhere
else: up to which clock a client has written, and how many elements a document has. Hashes come in no order, so contents
stand by the document that names them: otherwise each message would change a page somewhere in an index of all of them,
and a message would cost more the more there are.
"""

from __future__ import annotations

from typing import Final

from sublet.messaging.backends.ranking_messages import rank_messages
from sublet.migrations.schema import Migration, Schema, Tables

SCHEMA_VERSION: Final = 14

_TABLES: Final = """
CREATE TABLE documents (
    number INTEGER PRIMARY KEY,
    doc_id TEXT NOT NULL UNIQUE,
    room_id TEXT,
    kind TEXT NOT NULL
);
CREATE INDEX documents_of_room ON documents (room_id, kind, doc_id);
CREATE TABLE log (
    seq INTEGER PRIMARY KEY,
    document INTEGER NOT NULL,
    client INTEGER,
    start INTEGER NOT NULL,
    until INTEGER NOT NULL,
    envelope BLOB NOT NULL,
    head BLOB
);
CREATE INDEX log_of_client ON log (document, client, until);
CREATE TABLE clients (
    document INTEGER NOT NULL,
    client INTEGER NOT NULL,
    signer TEXT NOT NULL,
    PRIMARY KEY (document, client)
) WITHOUT ROWID;
CREATE TABLE entries (
    document INTEGER NOT NULL,
    client INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    length INTEGER NOT NULL,
    origin_client INTEGER,
    origin_clock INTEGER,
    right_client INTEGER,
    right_clock INTEGER,
    entry_id TEXT NOT NULL,
    signer TEXT NOT NULL,
    seq INTEGER NOT NULL,
    shown INTEGER NOT NULL,
    rank INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (document, seq, clock)
) WITHOUT ROWID;
CREATE INDEX entries_by_id ON entries (entry_id);
CREATE INDEX entries_by_rank ON entries (document, rank);
CREATE INDEX entries_hidden ON entries (signer) WHERE shown = 0;
CREATE TABLE afters (
    document INTEGER NOT NULL,
    client INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    after_doc TEXT NOT NULL,
    after_client INTEGER NOT NULL,
    after_clock INTEGER NOT NULL,
    PRIMARY KEY (document, client, clock)
) WITHOUT ROWID;
CREATE INDEX afters_of ON afters (after_doc);
CREATE TABLE writes (
    number INTEGER PRIMARY KEY,
    document INTEGER NOT NULL,
    client INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    entry_client INTEGER,
    entry_clock INTEGER,
    container_client INTEGER,
    container_clock INTEGER,
    key TEXT NOT NULL,
    origin_client INTEGER,
    origin_clock INTEGER,
    right_client INTEGER,
    right_clock INTEGER,
    signer TEXT NOT NULL,
    seq INTEGER NOT NULL,
    value BLOB
);
CREATE INDEX writes_of_entry ON writes (document, entry_client, entry_clock, number);
CREATE INDEX writes_by_item ON writes (document, client, clock);
CREATE TABLE deletions (
    document INTEGER NOT NULL,
    client INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    length INTEGER NOT NULL,
    signer TEXT NOT NULL,
    seq INTEGER NOT NULL
);
CREATE INDEX deletions_of_client ON deletions (document, client, signer);
CREATE TABLE contents (number INTEGER PRIMARY KEY, document INTEGER NOT NULL, hash BLOB NOT NULL, raw BLOB NOT NULL);
CREATE UNIQUE INDEX contents_of_document ON contents (document, hash);
CREATE TABLE records (entity_id TEXT PRIMARY KEY, raw BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE forks (
    document INTEGER NOT NULL,
    client INTEGER NOT NULL,
    clock INTEGER NOT NULL,
    signer TEXT NOT NULL,
    one BLOB NOT NULL,
    other BLOB NOT NULL,
    PRIMARY KEY (document, client)
) WITHOUT ROWID;
CREATE TABLE strangers (
    room_id TEXT NOT NULL,
    signer TEXT NOT NULL,
    updates INTEGER NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (room_id, signer)
) WITHOUT ROWID;
CREATE TABLE usage (
    room_id TEXT NOT NULL,
    domain TEXT NOT NULL,
    size INTEGER NOT NULL,
    PRIMARY KEY (room_id, domain)
) WITHOUT ROWID;
CREATE TABLE roots (
    room_id TEXT NOT NULL,
    entity_id TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    raw BLOB NOT NULL,
    PRIMARY KEY (room_id, entity_id)
) WITHOUT ROWID;
CREATE TABLE trees (number INTEGER PRIMARY KEY, room_id TEXT NOT NULL UNIQUE);
CREATE TABLE leaves (
    tree INTEGER NOT NULL,
    place BLOB NOT NULL,
    document INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    clocks INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (tree, place)
) WITHOUT ROWID;
CREATE TABLE nodes (
    tree INTEGER NOT NULL,
    prefix BLOB NOT NULL,
    count INTEGER NOT NULL,
    clocks INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (tree, prefix)
) WITHOUT ROWID;
CREATE TABLE due (room_id TEXT NOT NULL, place BLOB NOT NULL, PRIMARY KEY (room_id, place)) WITHOUT ROWID;
CREATE TABLE invitations (
    room_id TEXT PRIMARY KEY,
    home TEXT NOT NULL,
    inviter TEXT NOT NULL,
    whom TEXT NOT NULL,
    name TEXT NOT NULL,
    members TEXT NOT NULL,
    member_count INTEGER NOT NULL,
    answer TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    kept BLOB NOT NULL,
    told INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE purged (
    room_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    ref_id TEXT NOT NULL,
    author TEXT NOT NULL,
    what TEXT NOT NULL,
    by TEXT NOT NULL,
    at TEXT NOT NULL,
    place BLOB,
    PRIMARY KEY (room_id, kind, name, ref_id)
) WITHOUT ROWID;
CREATE INDEX purged_with ON purged (room_id, ref_id);
CREATE INDEX purged_at ON purged (room_id, place) WHERE place IS NOT NULL;
CREATE TABLE purges_due (
    due TEXT NOT NULL,
    room_id TEXT NOT NULL,
    name TEXT NOT NULL,
    mark BLOB NOT NULL,
    PRIMARY KEY (due, room_id, name)
) WITHOUT ROWID;
CREATE TABLE forgotten (room_id TEXT PRIMARY KEY, due INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (cursor INTEGER PRIMARY KEY, kind TEXT NOT NULL, room_id TEXT, data TEXT NOT NULL);
CREATE TABLE index_entries (
    name TEXT NOT NULL,
    key TEXT NOT NULL,
    rank TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (name, key, rank)
) WITHOUT ROWID;
CREATE TABLE searched (
    number INTEGER PRIMARY KEY,
    document INTEGER NOT NULL,
    ref_id TEXT NOT NULL UNIQUE,
    at TEXT NOT NULL
);
CREATE INDEX searched_of_document ON searched (document);
CREATE TABLE searched_until (document INTEGER PRIMARY KEY, seq INTEGER NOT NULL, clock INTEGER NOT NULL);
CREATE TABLE searched_again (number INTEGER PRIMARY KEY, document INTEGER NOT NULL, ref_id TEXT NOT NULL UNIQUE);
CREATE VIRTUAL TABLE words USING fts5(body, tokenize = 'unicode61 remove_diacritics 2');
"""


def _words(tables: Tables) -> None:
    """Version 10: messages are found by their words. They are taken in later, by whoever searches."""
    tables.execute(
        "CREATE TABLE searched (number INTEGER PRIMARY KEY, document INTEGER NOT NULL, ref_id TEXT NOT NULL UNIQUE, "
        "at TEXT NOT NULL)"
    )
    tables.execute("CREATE INDEX searched_of_document ON searched (document)")
    tables.execute(
        "CREATE TABLE searched_until (document INTEGER PRIMARY KEY, seq INTEGER NOT NULL, clock INTEGER NOT NULL)"
    )
    tables.execute(
        "CREATE TABLE searched_again "
        "(number INTEGER PRIMARY KEY, document INTEGER NOT NULL, ref_id TEXT NOT NULL UNIQUE)"
    )
    tables.execute("CREATE VIRTUAL TABLE words USING fts5(body, tokenize = 'unicode61 remove_diacritics 2')")


def _invitations(tables: Tables) -> None:
    """Version 12: a room that somebody brings ours into waits until that is accepted. Rooms that are here stay."""
    tables.execute(
        "CREATE TABLE invitations (room_id TEXT PRIMARY KEY, home TEXT NOT NULL, inviter TEXT NOT NULL, "
        "whom TEXT NOT NULL, name TEXT NOT NULL, members TEXT NOT NULL, member_count INTEGER NOT NULL, "
        "answer TEXT NOT NULL, at_ms INTEGER NOT NULL, kept BLOB NOT NULL, told INTEGER NOT NULL) WITHOUT ROWID"
    )


def _trees(tables: Tables) -> None:
    """Version 13: digest trees in place of what members have said of heads. They are built later, in steps."""
    tables.execute("DROP TABLE heads")
    tables.execute(
        "CREATE TABLE roots (room_id TEXT NOT NULL, entity_id TEXT NOT NULL, at_ms INTEGER NOT NULL, "
        "raw BLOB NOT NULL, PRIMARY KEY (room_id, entity_id)) WITHOUT ROWID"
    )
    tables.execute("CREATE TABLE trees (number INTEGER PRIMARY KEY, room_id TEXT NOT NULL UNIQUE)")
    tables.execute(
        "CREATE TABLE leaves (tree INTEGER NOT NULL, place BLOB NOT NULL, document INTEGER NOT NULL, "
        "seq INTEGER NOT NULL, clocks INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (tree, place)) WITHOUT ROWID"
    )
    tables.execute(
        "CREATE TABLE nodes (tree INTEGER NOT NULL, prefix BLOB NOT NULL, count INTEGER NOT NULL, "
        "clocks INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (tree, prefix)) WITHOUT ROWID"
    )
    tables.execute(
        "CREATE TABLE due (room_id TEXT NOT NULL, place BLOB NOT NULL, PRIMARY KEY (room_id, place)) WITHOUT ROWID"
    )
    tables.execute(
        "INSERT OR REPLACE INTO settings SELECT 'trees_unbuilt_until', coalesce(max(number), 0) FROM documents"
    )


def _purges(tables: Tables) -> None:
    """Version 14: what is gone for good, so that an earlier version, which would bring it back, does not take it up."""
    tables.execute(
        "CREATE TABLE purged (room_id TEXT NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, ref_id TEXT NOT NULL, "
        "author TEXT NOT NULL, what TEXT NOT NULL, by TEXT NOT NULL, at TEXT NOT NULL, place BLOB, "
        "PRIMARY KEY (room_id, kind, name, ref_id)) WITHOUT ROWID"
    )
    tables.execute("CREATE INDEX purged_with ON purged (room_id, ref_id)")
    tables.execute("CREATE INDEX purged_at ON purged (room_id, place) WHERE place IS NOT NULL")
    tables.execute(
        "CREATE TABLE purges_due (due TEXT NOT NULL, room_id TEXT NOT NULL, name TEXT NOT NULL, mark BLOB NOT NULL, "
        "PRIMARY KEY (due, room_id, name)) WITHOUT ROWID"
    )


MIGRATIONS: Final[tuple[Migration, ...]] = (
    Migration(10, "find messages by their words", _words),
    Migration(11, "order messages by what their writers had seen", rank_messages),
    Migration(12, "ask before a room is taken up", _invitations),
    Migration(13, "compare rooms by digest trees", _trees),
    Migration(14, "keep what is gone for good", _purges),
)
"""All steps from version 9 on, the first that a release had."""

SCHEMA: Final = Schema(
    "the messages of rooms",
    SCHEMA_VERSION,
    tuple(statement for part in _TABLES.split(";") if (statement := part.strip())),
    MIGRATIONS,
)

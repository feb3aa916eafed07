"""The tables of the journal of federation. A change of them raises ``SCHEMA_VERSION`` and adds a migration."""

from __future__ import annotations

from typing import Final

from sublet.migrations.schema import Schema

STORE_NAME: Final = "federation.sqlite3"
SCHEMA_VERSION: Final = 1

_TABLES: Final = (
    # One row per task of another node. ``result`` is JSON, NULL while the task is at work; ``heard`` tells whether its
    # node has taken the result. Node and request are whatever the other side says: never a path, never a command.
    """CREATE TABLE tasks(
        node TEXT NOT NULL, request TEXT NOT NULL, agent TEXT NOT NULL, requester TEXT NOT NULL, result TEXT,
        heard INTEGER NOT NULL, at REAL NOT NULL, PRIMARY KEY (node, request)) STRICT, WITHOUT ROWID""",
    "CREATE INDEX task_age ON tasks(heard, at)",
    # Whose the name of a node is: the fingerprint of the first key that had it.
    "CREATE TABLE names(name TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, at REAL NOT NULL) STRICT, WITHOUT ROWID",
)

SCHEMA: Final = Schema("the journal of federation", SCHEMA_VERSION, _TABLES, ())

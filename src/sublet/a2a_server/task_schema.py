"""The table of A2A tasks. A change of it raises ``SCHEMA_VERSION`` and adds a migration.

``body`` is a task as A2A 1.0 states it in Protocol Buffers, which are made to be kept: fields go by number, a number is
never used again, and what a reader does not know it leaves alone. So it is stored as it is; all that is searched for is
in columns of ours.
"""

from __future__ import annotations

from typing import Final

from sublet.migrations.schema import Migration, Schema, Tables

STORE_NAME: Final = "a2a.sqlite3"
SCHEMA_VERSION: Final = 1


def _name_the_version(tables: Tables) -> None:
    """Make what is missing; the first version made its table at every start and wrote no version number."""
    for statement in _FIRST:
        tables.execute(statement)


_FIRST: Final = (
    """CREATE TABLE IF NOT EXISTS a2a_task(
        id TEXT PRIMARY KEY, owner TEXT NOT NULL, context_id TEXT NOT NULL, state INTEGER NOT NULL,
        ended INTEGER NOT NULL, updated INTEGER NOT NULL, body BLOB NOT NULL) STRICT""",
    "CREATE INDEX IF NOT EXISTS a2a_task_list ON a2a_task(owner, updated DESC, id DESC)",
    "CREATE INDEX IF NOT EXISTS a2a_task_age ON a2a_task(ended, updated)",
)
"""As the first version had it; never changed."""

MIGRATIONS: Final = (Migration(1, "the version is written into the file", _name_the_version),)

SCHEMA: Final = Schema("the A2A tasks", SCHEMA_VERSION, _FIRST, MIGRATIONS)

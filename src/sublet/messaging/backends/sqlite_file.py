"""The messaging database's file: opened for its one writer, and made where it is missing.

``synchronous=NORMAL`` with a write-ahead log: nothing committed is lost when the process is killed; the last commits
may go with the power of the machine.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from sublet.messaging.backends.schema import SCHEMA, SCHEMA_VERSION
from sublet.protocol.errors import LocalCode, SubletError

CACHE_KIB: Final = 16 << 10
CHECKPOINT_PAGES: Final = 4_096
"""How long the write-ahead log grows, 16 MiB: pages that many messages share are written back once for all of these."""


def open_database(path: Path | None) -> sqlite3.Connection:
    """Return the database, with all tables.

    Args:
        path: its file; None keeps it in memory.

    Raises:
        SubletError: ``INTERNAL``: the file is of another version.
    """
    if path is not None:
        # Made here, since SQLite would let others read it; what it puts beside it has the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    database.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        database.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version={SCHEMA_VERSION};COMMIT;")
    elif version != SCHEMA_VERSION:
        database.close()
        raise SubletError(
            LocalCode.INTERNAL,
            f"the messages in {path} have format {version}, this program writes {SCHEMA_VERSION}",
            "Use the version of Sublet that wrote them, or move the file away to begin anew.",
        )
    return database

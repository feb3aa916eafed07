"""The messaging database's file: opened for its one writer, and made where it is missing.

``synchronous=NORMAL`` with a write-ahead log: nothing committed is lost when the process is killed; the last commits
may go with the power of the machine.
"""

from __future__ import annotations

import atexit
import os
import sqlite3
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from sublet.messaging.backends.schema import SCHEMA
from sublet.migrations.damage import is_damage
from sublet.migrations.database import prepare
from sublet.protocol.errors import LocalCode, SubletError

CACHE_KIB: Final = 16 << 10
CHECKPOINT_PAGES: Final = 4_096
"""How long the write-ahead log grows, 16 MiB: pages that many messages share are written back once for all of these."""
_COPYING: Final = threading.Lock()


def open_database(path: Path | None) -> sqlite3.Connection:
    """Return the database, with all tables.

    Args:
        path: its file; None keeps it in memory.

    Raises:
        SubletError: ``STATE_VERSION`` or ``UNAVAILABLE``: the file is of a version that can't be taken up.
    """
    if path is not None:
        # Made here, since SQLite would let others read it; what it puts beside it has the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    database = sqlite3.connect(path or ":memory:", isolation_level=None, check_same_thread=False)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA synchronous=NORMAL")
    database.execute("PRAGMA secure_delete=ON")  # what is purged is overwritten, whatever SQLite was built with
    database.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    database.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
    try:
        if path is None:
            with _COPYING:
                _empty().backup(database)
        else:
            prepare(database, path, SCHEMA)
    except BaseException:
        database.close()
        raise
    return database


@cache
def _empty() -> sqlite3.Connection:
    """Return a database in memory with all tables and no rows, of which others are copies.

    Whoever looks whether documents are whole makes many, and to make all tables takes many times what a copy does.
    """
    database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    atexit.register(database.close)
    prepare(database, None, SCHEMA)
    return database


def not_kept(error: sqlite3.Error, damaged: Callable[[], None]) -> SubletError:
    """Return what whoever asked is told where the database can't be read or written just now.

    Args:
        error: why.
        damaged: told where that says that the file is damaged.
    """
    if is_damage(error):
        damaged()
        return SubletError(
            LocalCode.UNAVAILABLE,
            f"messages can't be kept or read just now, since their database is damaged: {error}",
            "It is being mended, and what is missing is asked for from members; `sublet status` tells. Try again soon.",
        )
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"messages can't be kept or read just now: {error}",
        "See that there is room on the disk and that the database can be written, then try again.",
    )

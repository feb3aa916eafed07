"""Finds out whether a SQLite database of ours is damaged: by a look at its size, by SQLite's own check, by its errors.

Rules: nothing is written, and a check holds up nobody: it reads beside the one writer, one table at a time. Weak: bits
that a disk flips inside of a value leave a sound page; whoever knows what the value means has to find these.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

MAX_WHY: Final = 200
_NO_TEXT: Final = "Could not decode to UTF-8"
_HEADER_BYTES: Final = 100
_MAGIC: Final = b"SQLite format 3\0"
_DAMAGE: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_BUSY_SECONDS: Final = 5.0
_CACHE_KIB: Final = 2_048


def is_damage(error: BaseException) -> bool:
    """Tell whether an error of SQLite says that a file is damaged, and not that a disk is full or somebody is busy."""
    if not isinstance(error, sqlite3.Error):
        return False
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGE or str(error).startswith(_NO_TEXT)


def in_words(error: BaseException) -> str:
    """Return what an error says, bounded."""
    return (str(error) or type(error).__name__)[:MAX_WHY]


def look(path: Path) -> str:
    """Return what a glance at a file shows to be wrong with it, in words; empty where that is nothing.

    It takes no longer for a large file, so that a start can afford it: a file that was cut, or that is no database.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER_BYTES)
            size = file.seek(0, 2)
    except OSError:
        return ""  # for whoever opens it to say
    if not head:
        return ""
    if len(head) < _HEADER_BYTES or not head.startswith(_MAGIC):
        return "it is no database"
    page = int.from_bytes(head[16:18], "big")
    whole = int.from_bytes(head[28:32], "big") * (65_536 if page == 1 else page)
    # What a log holds may be the end of the file, and only who has counted the change last has counted the pages.
    if not _logged(path) and head[24:28] == head[92:96] and size < whole:
        return f"it was cut: {size} bytes are there of {whole}"
    return ""


def find(path: Path, *, alone: bool = False) -> Generator[str, None, None]:
    """Yield what SQLite's own check finds wrong, in words, with an empty text for each table that is sound.

    Each step reads one table with its indexes; whoever is in no hurry waits between two. Blocks.

    Args:
        path: the file.
        alone: whether nobody else has it open.
    """
    try:
        with reading(path, alone=alone) as database:
            names = [str(name) for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            for name in names:
                quoted = name.replace("'", "''")
                (found,) = database.execute(f"PRAGMA integrity_check('{quoted}')").fetchone()
                yield "" if found == "ok" else str(found)[:MAX_WHY]
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        yield in_words(error)


def first(path: Path, *, alone: bool = True) -> str:
    """Return the first thing that is wrong with a database, empty where it is sound. Blocks, as long as it is large.

    Args:
        path: the file.
        alone: whether nobody else has it open.
    """
    return look(path) or next(filter(None, find(path, alone=alone)), "")


@contextmanager
def reading(path: Path, *, alone: bool = False) -> Iterator[sqlite3.Connection]:
    """Open a database for reading beside its writer; a text that is not UTF-8 is read with replacements.

    Args:
        path: the file.
        alone: whether nobody else has it open. Nothing is left beside it then, unless a kill has left a log.
    """
    uri = f"{path.absolute().as_uri()}?{'immutable=1' if alone and not _logged(path) else 'mode=ro'}"
    opened = sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    with closing(opened) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        database.execute("PRAGMA query_only=ON")
        database.execute("PRAGMA trusted_schema=OFF")
        database.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
        yield database


def _logged(path: Path) -> int:
    """Return how many bytes a database's log has."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size
    except OSError:
        return 0

"""Damages a database of messaging as disks, cut copies and hands do: decided by a seed, and never its first page."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Final

PAGE: Final = 4096
FLIPPED: Final = 24
DELETED: Final = 6


def damage(database: Path, how: str, seed: int) -> None:
    """Damage a database that no process has open; see ``kinds``."""
    random = Random(seed)
    with suppress(sqlite3.DatabaseError):  # it may be damaged already
        _prepare(database, random, how)
    size = database.stat().st_size
    with open(database, "r+b") as file:
        if how == "flipped bits":
            for _ in range(FLIPPED):
                place = random.randrange(PAGE, size)
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ 1 << random.randrange(8)]))
        elif how == "cut database":
            file.truncate(size // PAGE * 3 // 4 * PAGE)


def _prepare(database: Path, random: Random, how: str) -> None:
    """Move what is in the write-ahead log into the database, so that it is hit, too; or delete rows."""
    with sqlite3.connect(database) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if how == "deleted rows":
            rows = [seq for (seq,) in db.execute("SELECT seq FROM log ORDER BY seq").fetchall()]
            for seq in random.sample(rows[len(rows) // 4 :], min(DELETED, len(rows) // 2)):
                for table in ("log", "entries", "writes"):
                    db.execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))
    db.close()

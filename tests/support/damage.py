"""Damages databases as disks, kills and other programs do: flipped bits, a cut file, rows that are gone."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

PAGE = 4_096


def fold(path: Path) -> None:
    """Fold the log into the file, so that the file holds everything."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def pages_of(path: Path, table: str) -> list[int]:
    """Return the first pages of a table's rows: all that a walk over it reads, found by its root."""
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
    found, waiting, raw = [], [int(root)], path.read_bytes()
    while waiting:
        number = waiting.pop(0)
        start = (number - 1) * PAGE + (100 if number == 1 else 0)
        kind, cells = raw[start], int.from_bytes(raw[start + 3 : start + 5], "big")
        if kind != 5:
            found.append(number)
            continue
        for cell in range(cells):
            at = int.from_bytes(raw[start + 12 + 2 * cell : start + 14 + 2 * cell], "big")
            waiting.append(int.from_bytes(raw[start + at : start + at + 4], "big"))
        waiting.append(int.from_bytes(raw[start + 8 : start + 12], "big"))
    return found


def flip_pages(path: Path, *pages: int, seed: int = 1) -> None:
    """Put noise in the place of the beginnings of some pages."""
    fold(path)
    noise = random.Random(seed)
    with path.open("r+b") as file:
        for number in pages:
            file.seek((number - 1) * PAGE + (100 if number == 1 else 0))
            file.write(noise.randbytes(64))


def flip_in(path: Path, wanted: bytes) -> None:
    """Flip a bit behind some bytes, which stay within a sound page."""
    fold(path)
    raw = bytearray(path.read_bytes())
    at = raw.index(wanted) + len(wanted) - 1
    raw[at] ^= 1
    path.write_bytes(raw)


def cut(path: Path, share: float) -> None:
    """Leave the beginning of a file, in whole pages."""
    fold(path)
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * share) // PAGE * PAGE)


def execute(path: Path, sql: str, *values: object) -> int:
    """Change rows as another program would; return how many."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        return db.execute(sql, values).rowcount

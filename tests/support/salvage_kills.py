"""Kills the repair of a damaged database at every line that it runs, and says what is left each time.

Usage: python -m support.salvage_kills DIRECTORY, with ``tests`` on the path. It prints one JSON object: how many kills
there were, and in how many of them the damaged file or the sound one was found, or ``wrong`` with what was found.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

from sublet.migrations import damage
from sublet.migrations.salvage import damaged_files, finish, salvage
from sublet.migrations.schema import Schema
from support.damage import flip_pages, pages_of
from support.line_kills import killed_at

ROWS: Final = 400
MAX_LINES: Final = 100_000
EVERY: Final = 101
_TRACED: Final = (
    f"{os.sep}sublet{os.sep}migrations{os.sep}salvage.py",
    f"{os.sep}sublet{os.sep}disk{os.sep}durable.py",
)
SCHEMA: Final = Schema("the notes", 1, ("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL)",))


def make_damaged(path: Path) -> None:
    """Make a database of which some pages are damaged, with a log beside it that was not folded in."""
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute(SCHEMA.create[0])
        made.execute("PRAGMA user_version=1")
        made.execute("BEGIN")
        made.executemany("INSERT INTO notes (body) VALUES (?)", [("x" * 200 + str(n),) for n in range(ROWS)])
        made.execute("COMMIT")
    flip_pages(path, *pages_of(path, "notes")[3:5])
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("INSERT INTO notes VALUES (1000, 'late')")
        kept = {end: path.with_name(path.name + end).read_bytes() for end in ("", "-wal")}
    for end, content in kept.items():
        path.with_name(path.name + end).write_bytes(content)


def rows(path: Path) -> int:
    """Return how many notes a sound database has."""
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute("SELECT count(*) FROM notes").fetchone()[0])


def judge(path: Path) -> str:
    """Return ``damaged`` or ``sound``, or what else is there; looked at in a copy, since opening changes files."""
    look = path.parent.with_name("look")
    shutil.rmtree(look, ignore_errors=True)
    shutil.copytree(path.parent, look)
    there = look / path.name
    finish(there)
    if damage.first(there):
        with damage.reading(there) as database:
            late = database.execute("SELECT body FROM notes WHERE id = 1000").fetchall()
        return "damaged" if late == [("late",)] else f"a log that is gone: {late}"
    return "sound" if rows(there) > ROWS - 60 and damaged_files(there) else f"{rows(there)} rows"


def main(place: Path) -> int:
    told: Counter[str] = Counter()
    wrong: list[str] = []
    base = place / "base"
    base.mkdir()
    make_damaged(base / "it.db")
    for number, line in enumerate([*range(1, MAX_LINES)]):
        # The many lines that copy rows are alike; before and behind them each counts.
        if number > 60 and line % EVERY and told["sound"] == 0:
            continue
        directory = place / "state"
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(base, directory)
        path = directory / "it.db"
        was_killed = killed_at(line, _TRACED, partial(salvage, path, SCHEMA, "noise"))
        left = judge(path)
        told[left] += 1
        if left not in ("damaged", "sound"):
            wrong.append(f"{line}: {left}")
        finish(path)
        if damage.first(path):
            salvage(path, SCHEMA, "noise")
        names = sorted(one.name.split("-")[0] for one in directory.iterdir() if not one.name.endswith(("-wal", "-shm")))
        if judge(path) != "sound" or names != ["it.db", "it.db.damaged"]:
            wrong.append(f"{line}, started again: {judge(path)} {names}")
        if not was_killed:
            print(json.dumps({"kills": sum(told.values()) - 1, "left": told, "wrong": wrong}))
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

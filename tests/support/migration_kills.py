"""Kills an upgrade of a small state directory at every line that it runs, and says what is left each time.

Usage: python -m support.migration_kills DIRECTORY, with ``tests`` on the path. It prints one JSON object: how many
kills there were and in how many of them each store was found old or new, or ``wrong`` with what was found instead. Each
kill is a SIGKILL of a real process, and each finds a copy of the state as it was.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from sublet.migrations.database import Database
from sublet.migrations.layout import Layout, LayoutFiles, LayoutStep
from sublet.migrations.schema import Migration, Schema, Tables
from sublet.migrations.upgrade import upgrade
from support.line_kills import killed_at

ROWS: Final = 40
MAX_LINES: Final = 5_000
"""More than the upgrade has; without an end the test would never have one."""
_TRACED: Final = (f"{os.sep}sublet{os.sep}migrations{os.sep}", __file__)
_FIRST: Final = ("CREATE TABLE notes (id INTEGER PRIMARY KEY, body TEXT NOT NULL)",)


def with_length(tables: Tables) -> None:
    """Step 2: a column that is filled."""
    tables.execute("ALTER TABLE notes ADD COLUMN length INTEGER")
    tables.execute("UPDATE notes SET length = length(body)")


def made_anew(tables: Tables) -> None:
    """Step 3: the table is made anew under the old name."""
    tables.execute("CREATE TABLE made (id INTEGER PRIMARY KEY, body TEXT NOT NULL, length INTEGER NOT NULL)")
    tables.execute("INSERT INTO made SELECT id, upper(body), length FROM notes")
    tables.execute("DROP TABLE notes")
    tables.execute("ALTER TABLE made RENAME TO notes")


SCHEMA: Final = Schema("the notes", 3, _FIRST, (Migration(2, "length", with_length), Migration(3, "anew", made_anew)))


def renamed(directory: Path) -> None:
    """Layout 2: a directory has another name."""
    if (directory / "old").exists():
        (directory / "old").rename(directory / "new")


def rewritten(directory: Path) -> None:
    """Layout 3: a file has another form."""
    path = directory / "new" / "file"
    if not (said := path.read_text()).startswith("{"):
        path.write_text(json.dumps({"said": said}))


LAYOUT: Final = Layout(
    3, (LayoutStep(2, "renamed", ("old",), renamed), LayoutStep(3, "rewritten", ("new",), rewritten)), 1, "one.db"
)


def make_old(directory: Path) -> None:
    """Make the state directory as the first version has left it; one database was not closed in order."""
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "old").mkdir(parents=True)
    (directory / "old" / "file").write_text("said")
    for name in ("one.db", "two.db"):
        with closing(sqlite3.connect(directory / name, isolation_level=None)) as made:
            made.execute("PRAGMA journal_mode=WAL")
            made.execute(_FIRST[0])
            made.execute("PRAGMA user_version=1")
            made.execute("BEGIN")
            made.executemany("INSERT INTO notes (body) VALUES (?)", [(f"note {n}",) for n in range(ROWS)])
            made.execute("COMMIT")
            if name == "two.db":
                kept = {end: (directory / f"{name}{end}").read_bytes() for end in ("", "-wal")}
    for end, content in kept.items():
        (directory / f"two.db{end}").write_bytes(content)


def stores(directory: Path) -> tuple[list[Database], LayoutFiles]:
    """Return all stores of the state directory."""
    databases = [Database(directory / name, SCHEMA) for name in ("one.db", "two.db")]
    return databases, LayoutFiles(directory, LAYOUT, "2.0")


def run(directory: Path) -> None:
    """Bring the state directory to this version."""
    upgrade(*stores(directory))


def found_in(path: Path) -> str:
    """Return ``old``, ``new`` or what else a database is."""
    with closing(sqlite3.connect(path)) as database:
        version = database.execute("PRAGMA user_version").fetchone()[0]
        rows = database.execute("SELECT * FROM notes ORDER BY id").fetchall()
    old = [(n + 1, f"note {n}") for n in range(ROWS)]
    new = [(n + 1, f"NOTE {n}", len(f"note {n}")) for n in range(ROWS)]
    if (version, rows) == (1, old):
        return "old"
    return "new" if (version, rows) == (3, new) else f"{version}: {rows}"


def found_files(directory: Path) -> str:
    """Return ``old``, ``moving`` or ``new``, or what else the files are."""
    file = directory / "state-version"
    said = json.loads(file.read_text()) if file.exists() else {"layout": 1}
    old, new = directory / "old" / "file", directory / "new" / "file"
    if said["layout"] == 3:
        return "new" if new.read_text() == '{"said": "said"}' and not old.exists() else f"torn: {said}"
    if "moving_to" in said:
        return "moving" if (directory / "files.v1" / "old" / "file").read_text() == "said" else f"no copy: {said}"
    return "old" if old.read_text() == "said" and not new.exists() else f"torn: {said}"


def judge(directory: Path) -> tuple[str, ...]:
    """Return what a kill has left of each store; complain of a store that has changed before all had their copies."""
    found = [found_files(directory)]
    # Looked at in copies, since opening a database after a kill changes its files.
    look = directory.with_name("look")
    shutil.rmtree(look, ignore_errors=True)
    shutil.copytree(directory, look)
    found += [found_in(look / name) for name in ("one.db", "two.db")]
    if "new" in found[1:]:
        found += [f"copy of {name}: {kept}" for name in ("one.db", "two.db") if (kept := copy_of(look, name)) != "old"]
    return tuple(found)


def copy_of(directory: Path, name: str) -> str:
    """Return what the copy of a database is."""
    path = directory / f"{name}.v1"
    return found_in(path) if path.exists() else "missing"


def main(place: Path) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    directory, made = place / "state", place / "made"
    make_old(made)
    told: Counter[str] = Counter()
    wrong: list[str] = []
    for line in range(1, MAX_LINES):
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(made, directory)
        was_killed = killed_at(line, _TRACED, partial(run, directory))
        left = judge(directory)
        told[" ".join(left[:3])] += 1
        if unknown := [one for one in left if one not in ("old", "new", "moving")]:
            wrong.append(f"{line}: {unknown}")
        run(directory)
        after = (*judge(directory), copy_of(directory, "one.db"), copy_of(directory, "two.db"))
        names = sorted(path.name for path in directory.iterdir() if not path.name.endswith(("-wal", "-shm")))
        if after != ("new", "new", "new", "old", "old") or names != [
            "files.v1", "new", "one.db", "one.db.v1", "state-version", "two.db", "two.db.v1",
        ]:  # fmt: skip
            wrong.append(f"{line}, started again: {after} {names}")
        if not was_killed:
            print(json.dumps({"kills": line - 1, "left": told, "wrong": wrong}))
            return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))

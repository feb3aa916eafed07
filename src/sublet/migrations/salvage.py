"""Makes a sound database of a damaged one: all rows that can be read still, in tables made anew.

Rules: the damaged file is read and never changed. The sound one is made beside it and is whole on the disk before it
takes the other's place, which a plan beside both says first: so a kill at any moment leaves the damaged file, or the
sound one, and the next start goes on. The damaged one stays beside, by another name.
Weak: of a table without numbers only what stands before the first and behind the last damaged place is read.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Collection
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sublet.disk.durable import sync_directory, write_durably
from sublet.disk.plain_file import read_plain
from sublet.migrations.damage import in_words, is_damage, reading
from sublet.migrations.schema import Schema
from sublet.protocol.errors import LocalCode, SubletError

KEPT_DAMAGED: Final = 2
"""Damaged files that are kept beside each database, the newest ones."""
MAX_PROBES: Final = 4_096
"""Places that are tried in one table around what can't be read."""
BATCH_ROWS: Final = 256
_PLAN_BYTES: Final = 4_096
_HEADER_BYTES: Final = 100
_VACUUM_AT: Final = 52


@dataclass(slots=True)
class Salvaged:
    """What became of a damaged database.

    Args:
        why: what was wrong with it.
        kept_as: where the damaged file is now.
        rows: how many rows each table has.
        torn: tables of which something could not be read, or of which some rows were no rows of such a table.
    """

    why: str
    kept_as: str = ""
    rows: dict[str, int] = field(default_factory=dict)
    torn: list[str] = field(default_factory=list)


def salvage(path: Path, schema: Schema, why: str, anew: Collection[str] = ()) -> Salvaged:
    """Put a sound database with all rows that can be read in the place of a damaged one. Blocks.

    Args:
        path: the file; nobody may have it open.
        schema: its tables.
        why: what is wrong with it, for the answer.
        anew: tables that are made from the others and begin empty.

    Raises:
        SubletError: ``UNAVAILABLE`` where there is no room for it, or the disk fails: nothing has changed.
    """
    finish(path)
    draft, found = path.with_name(f"{path.name}.sound"), Salvaged(why)
    try:
        _remove(draft)
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(draft, isolation_level=None)) as target:
            _make(target, schema, grows_small=_grows_small(path))
            _fill(path, target, found, anew)
            target.execute("PRAGMA journal_mode=DELETE")
        _sync(draft)
        kept = path.with_name(f"{path.name}.damaged-{time.time_ns() // 1_000_000}")
        found.kept_as = str(kept)
        write_durably(_plan(path), json.dumps({"keep": kept.name}).encode())
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            _remove(draft)
        raise _not_mended(schema, path, error) from None
    finish(path)
    return found


def finish(path: Path) -> None:
    """Go on with what a kill has interrupted: put the sound database in the damaged one's place if it is whole.

    Raises:
        OSError: the disk fails.
    """
    plan, draft = _plan(path), path.with_name(f"{path.name}.sound")
    try:
        name = str(json.loads(read_plain(plan, _PLAN_BYTES, follow=False))["keep"])
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError):
        name = ""
    if "/" not in name and name.startswith(f"{path.name}.damaged-") and draft.exists():
        kept = path.with_name(name)
        with suppress(FileExistsError, FileNotFoundError):
            os.link(path, kept, follow_symlinks=False)
        # Its log would be taken for the sound one's.
        with suppress(FileNotFoundError):
            path.with_name(path.name + "-wal").rename(kept.with_name(kept.name + "-wal"))
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        draft.replace(path)
        sync_directory(path.parent)
    plan.unlink(missing_ok=True)
    sync_directory(path.parent)
    for old in damaged_files(path)[:-KEPT_DAMAGED]:
        _remove(old)


def damaged_files(path: Path) -> list[Path]:
    """Return what is kept of a database's damaged files, the oldest first."""
    start = f"{path.name}.damaged-"
    found = [one for one in path.parent.glob(f"{start}*") if one.name[len(start) :].isdecimal()]
    return sorted(found, key=lambda one: int(one.name[len(start) :]))


def _grows_small(path: Path) -> bool:
    """Tell whether a database gives room back, which can't be chosen later."""
    with path.open("rb") as file:
        return any(file.read(_HEADER_BYTES)[_VACUUM_AT : _VACUUM_AT + 4])


def _make(target: sqlite3.Connection, schema: Schema, *, grows_small: bool) -> None:
    if grows_small:
        target.execute("PRAGMA auto_vacuum=INCREMENTAL")
    target.execute("PRAGMA journal_mode=OFF")  # it counts once it is whole, and not before
    target.execute("PRAGMA synchronous=OFF")
    for statement in schema.create:
        target.execute(statement)
    target.execute(f"PRAGMA application_id={schema.application_id}")
    target.execute(f"PRAGMA user_version={schema.version}")


def _fill(path: Path, target: sqlite3.Connection, found: Salvaged, anew: Collection[str]) -> None:
    tables = target.execute(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid"
    ).fetchall()
    # What a virtual table has below it begins with its name.
    virtual = tuple(f"{name}_" for name, sql in tables if str(sql).upper().startswith("CREATE VIRTUAL"))
    wanted = [
        (str(name), "WITHOUT ROWID" in str(sql).upper())
        for name, sql in tables
        if name not in anew and not f"{name}_".startswith(virtual or "\0")
    ]
    try:
        with reading(path, alone=True) as source:
            source.execute("PRAGMA writable_schema=ON")  # or nothing of a file that was cut could be read
            there = {str(name) for (name,) in source.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            for name, keyed in wanted:
                if name in there:
                    _Copy(source, target, name, found).run(keyed=keyed)
            if "sqlite_sequence" in there:
                _count_on(source, target)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        found.torn += [name for name, _ in wanted if name not in found.rows and name not in found.torn]
    for name, _ in wanted:
        found.rows.setdefault(name, 0)


def _count_on(source: sqlite3.Connection, target: sqlite3.Connection) -> None:
    """Let no number be given again that was given before, also where its row is gone."""
    for name, number in source.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
        target.execute("DELETE FROM sqlite_sequence WHERE name = ? AND seq < ?", (name, number))
        if target.execute("SELECT 1 FROM sqlite_sequence WHERE name = ?", (name,)).fetchone() is None:
            target.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, number))


class _Copy:
    """Copies one table as far as it can be read."""

    def __init__(self, source: sqlite3.Connection, target: sqlite3.Connection, table: str, found: Salvaged) -> None:
        self._source, self._target, self._table, self._found = source, target, table, found
        facts = target.execute(f"PRAGMA table_info('{table}')").fetchall()
        had = {str(row[1]) for row in source.execute(f"PRAGMA table_info('{table}')")}
        keys = sorted((row[5], str(row[1])) for row in facts if row[5])
        self._keys = [f'"{name}"' for _, name in keys]
        # A table's number may have a name of its own, by which it is not copied a second time.
        number = next((str(row[1]) for row in facts if row[5] and len(keys) == 1 and row[2] == "INTEGER"), None)
        columns = [f'"{row[1]}"' for row in facts if row[1] in had and row[1] != number]
        self._columns = ", ".join(columns)
        slots = ", ".join("?" for _ in columns)
        self._insert = f'INSERT OR IGNORE INTO "{table}" ({self._columns}) VALUES ({slots})'  # noqa: S608 - our schema
        self._insert_numbered = self._insert.replace("(", "(rowid, ", 1).replace("VALUES (", "VALUES (?, ")
        self._probes = 0
        self._torn = False

    def run(self, *, keyed: bool) -> None:
        """Copy all that can be read, and note what could not."""
        self._target.execute("BEGIN")
        if keyed:
            self._by_key()
        else:
            self._by_number(-(2**63), 2**63 - 1)
        self._target.execute("COMMIT")
        (count,) = self._target.execute(f'SELECT count(*) FROM "{self._table}"').fetchone()  # noqa: S608
        self._found.rows[self._table] = int(count)
        if self._torn:
            self._found.torn.append(self._table)

    def _by_key(self) -> None:
        for order in ("ASC", "DESC"):
            by = ", ".join(f"{name} {order}" for name in self._keys)
            if self._read(f'SELECT {self._columns} FROM "{self._table}" ORDER BY {by}', (), self._insert) is None:  # noqa: S608
                return
            self._torn = True

    def _by_number(self, low: int, high: int) -> None:
        """Copy rows by their numbers; where some can't be read, what is before and behind them, and so on."""
        waiting = [(low, high)]
        while waiting and self._probes < MAX_PROBES:
            low, high = waiting.pop()
            self._probes += 1
            before = self._numbered(low, high, "ASC")
            if before is None:
                continue
            self._torn = True
            behind = self._numbered(before[0], high, "DESC") if before else self._numbered(low, high, "DESC")
            low = before[0] + 1 if before else low
            high = behind[0] - 1 if behind else high
            if behind is not None and low < high:
                half = low + (high - low) // 2
                waiting += [(half + 1, high), (low, half)]

    def _numbered(self, low: int, high: int, order: str) -> list[int] | None:
        return self._read(
            f'SELECT rowid, {self._columns} FROM "{self._table}" WHERE rowid BETWEEN ? AND ? ORDER BY rowid {order}',  # noqa: S608
            (low, high),
            self._insert_numbered,
        )

    def _read(self, query: str, values: tuple[int, ...], insert: str) -> list[int] | None:
        """Copy rows until the end, which returns None, or until one can't be read: that returns the last one's number.

        The answer is empty where not one could be read.
        """
        last: list[int] = []
        try:
            with closing(self._source.execute(query, values)) as rows:
                while page := _some(rows):
                    for row in page.rows:
                        self._put(insert, row)
                        last = [row[0]] if isinstance(row[0], int) else last
                    if page.error is not None:
                        raise page.error
        except sqlite3.DatabaseError as error:
            if not is_damage(error) and not isinstance(error, sqlite3.OperationalError | sqlite3.DataError):
                raise
            if "full" in str(error) or "disk I/O" in str(error):
                raise
            return last
        return None

    def _put(self, insert: str, row: tuple[object, ...]) -> None:
        try:
            if self._target.execute(insert, row).rowcount == 0 and not self._has(row, insert):
                self._torn = True
        except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError):
            self._torn = True  # no row of such a table

    def _has(self, row: tuple[object, ...], insert: str) -> bool:
        """Tell whether a row that was not taken is there already, as read from the other end."""
        if insert is not self._insert_numbered:
            return True
        return (
            self._target.execute(f'SELECT 1 FROM "{self._table}" WHERE rowid = ?', (row[0],)).fetchone()  # noqa: S608
            is not None
        )


@dataclass(slots=True)
class _Page:
    rows: list[tuple[object, ...]]
    error: sqlite3.DatabaseError | None = None

    def __bool__(self) -> bool:
        return bool(self.rows) or self.error is not None


def _some(rows: sqlite3.Cursor) -> _Page:
    """Return the next rows, and what went wrong behind them."""
    found: list[tuple[object, ...]] = []
    try:
        for row in rows:
            found.append(row)
            if len(found) == BATCH_ROWS:
                break
    except sqlite3.DatabaseError as error:
        return _Page(found, error)
    return _Page(found)


def _plan(path: Path) -> Path:
    return path.with_name(f"{path.name}.mending")


def _sync(draft: Path) -> None:
    fd = os.open(draft, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _remove(path: Path) -> None:
    for end in ("", "-journal", "-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


def _not_mended(schema: Schema, path: Path, error: Exception) -> SubletError:
    why = (error.strerror or str(error)) if isinstance(error, OSError) else in_words(error)
    with suppress(OSError):
        size = max(1, path.stat().st_size >> 20)
        why += f" (about {size} MiB are needed)"
    return SubletError(
        LocalCode.UNAVAILABLE,
        f"{schema.what} in {path} are damaged and could not be mended: {why}",
        f"Make room in {path.parent}; it is tried again, or do it at once: sublet down; sublet doctor --repair",
    )

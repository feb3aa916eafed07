"""Looks at how SQLite plans each statement of the product, and finds those that look at more rows than they name.

A statement that names a room and a message but is planned by the room alone looks at all rows of that room each time,
so that what a peer sends costs more the more there is. SQLite knows nothing of how many rows there are, so it chooses
by the text of a statement, and chooses wrong now and then. ``plans.toml`` lists what may stay, and what bounds it.
"""

from __future__ import annotations

import re
import sqlite3
import sys
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import sublet
from sublet.messaging.backends.schema import SCHEMA as MESSAGES
from sublet.messaging.mending.agreed import _SCHEMA as AGREED
from sublet.messaging.mending.losses import _SCHEMA as LOSSES
from sublet.messaging.relay.store import SCHEMA as RELAY

SCHEMAS: Final = {"messages": MESSAGES, "relay": RELAY, "agreed": AGREED, "losses": LOSSES}
PRODUCT: Final = str(Path(sublet.__file__).parent)
ONCE: Final = (f"{PRODUCT}/migrations", f"{PRODUCT}/messaging/backends/ranking_messages.py")
"""Whose statements run once for each file."""
LISTED: Final = Path(__file__).with_name("plans.toml")
_PLANNED: Final = re.compile(r"\s*(?:SELECT|WITH|DELETE|UPDATE|INSERT)\b")
_PLACE: Final = re.compile(r"\?(\d*)")
_USED: Final = re.compile(r"SEARCH (\w+) USING (?:COVERING )?(?:INDEX (\w+)|(INTEGER )?PRIMARY KEY) \((.*)\)")
_WORDS: Final = "WHERE|CROSS|LEFT|JOIN|ON|ORDER|GROUP|LIMIT|SET|INDEXED|NOT|USING|UNION|VALUES|DEFAULT|SELECT"
"""What stands behind the name of a table, where that is no other name for it."""
_TABLE: Final = re.compile(rf"\b(?:FROM|JOIN|UPDATE(?: OR \w+)?|INTO)\s+(\w+)(?:\s+(?:AS\s+)?(?!(?:{_WORDS})\b)(\w+))?")
_EQUAL: Final = re.compile(r"(?<![\w.+])(?:(\w+)\.)?(\w+) (?:= (?:(\w+)\.)?([\w?:']+)|IS NULL(?! OR)|IN (?:\S))")
_RANGE: Final = re.compile(r"(?<![\w.+])(?:(\w+)\.)?(\w+) (?:<=|>=|<|>|BETWEEN) ")
_NO_TABLE: Final = ("CONSTANT", "VIRTUAL TABLE", "sqlite_schema", "sqlite_master")


@dataclass(frozen=True, slots=True)
class Scope:
    """One SELECT, UPDATE or DELETE of a statement, without those inside of it."""

    tables: dict[str, str]
    """By the names that it gives them."""
    equal: tuple[tuple[str, str, str], ...]
    """Alias, column and what it is compared with, an alias or nothing."""
    ranges: tuple[tuple[str, str], ...]


def plain(sql: str) -> str:
    """Return a statement with single spaces."""
    return re.sub(r"\s+", " ", sql).strip()


def faults(db: sqlite3.Connection, sql: str, values: Any = None) -> list[str]:
    """Return what is wrong with how a statement is planned, in words; nothing where it is no query.

    Args:
        db: with the tables.
        sql: the statement.
        values: of its parameters; none where they don't matter.
    """
    if not _PLANNED.match(sql):
        return []
    if values is None:
        named = [int(number) for number in _PLACE.findall(sql) if number]
        values = (None,) * (max(named) if named else sql.count("?"))
    explain = sqlite3.Connection.execute
    lines = [str(row[3]) for row in explain(db, f"EXPLAIN QUERY PLAN {sql}", values)]
    scopes = list(_scopes(plain(sql)))
    found = [fault for line in lines if (fault := _fault(db, line, lines, scopes))]
    if "LIMIT" in sql and any("TEMP B-TREE" in line and "ORDER BY" in line for line in lines):
        found.append("all are put into order, to return few")
    return found


def _fault(db: sqlite3.Connection, line: str, lines: list[str], scopes: list[Scope]) -> str:
    if "AUTOMATIC" in line:
        return f"{line}: there is no index"
    if line.startswith("SCAN "):
        name = line.split()[1]
        made = any(one in lines for one in (f"CO-ROUTINE {name}", f"MATERIALIZE {name}"))
        return "" if made or any(one in line for one in _NO_TABLE) else f"{line}: all rows are looked at"
    search = _USED.match(line)
    if search is None:
        return ""
    alias, index, by_number, terms = search.groups()
    used = re.findall(r"(\w+)=", terms)
    order = [match[1] for one in lines if (match := re.match(r"(?:SEARCH|SCAN) (\w+)", one))]
    for scope in scopes:
        if alias not in scope.tables:
            continue
        table = scope.tables[alias]
        columns = _columns(db, table)
        if (by_number and used) or _is_whole(db, table, index, used):
            return ""
        later = set(order[order.index(alias) + 1 :])
        named = {
            column
            for one, column, other in scope.equal
            if one in ("", alias) and column in columns and not (other in later and other in scope.tables)
        } - _implied(db, index)
        ranges = {column for one, column in scope.ranges if one in ("", alias) and column in columns} - named
        if len(named) > len(used):
            return f"{line}: it names {', '.join(sorted(named))}"
        if ranges and not re.search(r"[<>]", terms) and not len(used) > len(named):
            return f"{line}: it bounds {', '.join(sorted(ranges))}"
        return ""
    return ""


def _scopes(sql: str) -> Iterator[Scope]:
    """Yield what a statement selects, the innermost first."""
    inner = re.compile(r"\((?=SELECT\b|WITH\b)")
    while found := list(inner.finditer(sql)):
        start, depth = found[-1].end(), 1
        end = start
        while depth:
            depth += {"(": 1, ")": -1}.get(sql[end], 0)
            end += 1
        yield _scope(sql[start : end - 1])
        sql = f"{sql[: start - 1]}?{sql[end:]}"
    yield _scope(sql)


def _scope(sql: str) -> Scope:
    tables = {alias or table: table for table, alias in _TABLE.findall(sql)}
    asked = re.split(r"\b(?:WHERE|ON)\b", sql, maxsplit=1)
    asked_for = asked[1] if len(asked) == 2 else ""
    equal: list[tuple[str, str, str]] = []
    for alias, column, other, value in _EQUAL.findall(asked_for):
        equal.append((alias, column, other))
        if other:
            equal.append((other, value, alias))
    return Scope(tables, tuple(equal), tuple(_RANGE.findall(asked_for)))


def _columns(db: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in sqlite3.Connection.execute(db, f"PRAGMA table_info({table})")} | {"rowid"}


def _is_whole(db: sqlite3.Connection, table: str, index: str | None, used: list[str]) -> bool:
    """Tell whether no two rows have what is used."""
    execute = sqlite3.Connection.execute
    if index is None:
        key = [row[1] for row in execute(db, f"PRAGMA table_info({table})") if row[5]]
    else:
        unique = [row[1] for row in execute(db, f"PRAGMA index_list({table})") if row[2]]
        if index not in unique:
            return False
        key = [row[2] for row in execute(db, f"PRAGMA index_info({index})")]
    return len(used) >= len(key)


def _implied(db: sqlite3.Connection, index: str | None) -> set[str]:
    """Return the columns that an index of some rows only says something of."""
    row = sqlite3.Connection.execute(db, "SELECT sql FROM sqlite_schema WHERE name = ?", (index,)).fetchone()
    return set(re.findall(r"\w+", row[0].partition(" WHERE ")[2])) if row is not None and row[0] else set()


@cache
def listed() -> dict[str, str]:
    """Return statements that may look at more than they name, with what bounds that."""
    return {plain(one["statement"]): one["bound"] for one in tomllib.loads(LISTED.read_text("utf-8"))["may"]}


def databases() -> dict[str, sqlite3.Connection]:
    """Return databases of the product in memory, with their tables alone."""
    made = {}
    for name, schema in SCHEMAS.items():
        made[name] = sqlite3.connect(":memory:", isolation_level=None)
        for statement in schema.create:
            made[name].execute(statement)
    return made


class Watched:
    """Looks at each statement of the product once, when it is first run by any connection of this process."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.found: list[str] = []

    def look(self, db: sqlite3.Connection, sql: str, values: Any, caller: str) -> None:
        """Note a statement that is planned badly and not listed.

        Args:
            db: the connection.
            sql: the statement.
            values: of its parameters; none for any.
            caller: the file that runs it.
        """
        if not caller.startswith(PRODUCT) or caller.startswith(ONCE):
            return
        self.seen.add(sql)
        if (wrong := faults(db, sql, values)) and plain(sql) not in listed():
            self.found.append("\n    ".join((plain(sql), *wrong)))

    def take(self) -> list[str]:
        """Return what was found since the last call."""
        found, self.found = self.found, []
        return found


@contextmanager
def watched() -> Iterator[Watched]:
    """Have every connection that is opened meanwhile looked at."""
    watch, real = Watched(), sqlite3.connect

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            if sql not in watch.seen:
                watch.look(self, sql, values[0] if values else (), sys._getframe(1).f_code.co_filename)
            return super().execute(sql, *values)

        def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
            if sql not in watch.seen:
                watch.look(self, sql, None, sys._getframe(1).f_code.co_filename)
            return super().executemany(sql, rows)

    def connect(*given: Any, **more: Any) -> sqlite3.Connection:
        more.setdefault("factory", Connection)
        return real(*given, **more)  # type: ignore[no-any-return]

    sqlite3.connect = connect  # type: ignore[assignment]
    try:
        yield watch
    finally:
        sqlite3.connect = real

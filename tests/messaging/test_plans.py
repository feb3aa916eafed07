"""Statements that look at more rows than they name are found, whoever of the product runs them, and no others."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from support.plans import PRODUCT, Watched, databases, faults, listed, watched

BAD = {
    "by the room of a room and a message": "SELECT what FROM purged WHERE room_id = ? AND ref_id = ?",
    "without an index": "DELETE FROM leaves WHERE document = ?",
    "of one update of a document": "DELETE FROM writes WHERE document = ? AND seq = ?",
    "of a range, by all of a document": "SELECT head FROM log WHERE document = ? AND seq > ?",
    "in order, of which few are wanted": "SELECT seq FROM log WHERE document = ? ORDER BY seq LIMIT ?",
    "for each of others": "SELECT 1 FROM log l WHERE l.document = ? AND EXISTS "
    "(SELECT 1 FROM deletions d WHERE d.document = l.document AND d.seq = l.seq)",
    "joined by half of a key": "SELECT c.client FROM documents d JOIN clients c ON c.document = d.number "
    "WHERE d.room_id = ? AND c.signer = ?",
    "with a condition that may be none": "SELECT head FROM log WHERE document = ? AND (? IS NULL OR client = ?)",
    "where nothing is asked": "SELECT room_id FROM purged",
}
GOOD = (
    "SELECT what FROM purged INDEXED BY purged_with WHERE room_id = ? AND ref_id = ?",
    "DELETE FROM documents WHERE number = ? AND kind = ?",
    "SELECT seq FROM log WHERE document = ? AND client IS NULL AND until = 0 AND seq > ? ORDER BY seq LIMIT ?",
    "SELECT entry_id FROM entries WHERE signer = ? AND shown = 0",
    "SELECT d.room_id FROM words JOIN documents d ON d.number = words.rowid WHERE words MATCH ?",
    "SELECT value FROM json_each(?)",
    "INSERT INTO settings VALUES (?, ?)",
    "PRAGMA data_version",
)


@pytest.fixture(scope="module")
def db() -> Iterator[sqlite3.Connection]:
    """A database with the tables of messages."""
    with closing(databases()["messages"]) as made:
        yield made


def run(db: sqlite3.Connection, code: str, file: str) -> None:
    exec(compile(code, file, "exec"), {"db": db})


@pytest.mark.parametrize("why", BAD)
def test_a_statement_that_looks_at_too_much_is_found(db: sqlite3.Connection, why: str) -> None:
    assert faults(db, BAD[why])


@pytest.mark.parametrize("sql", GOOD)
def test_a_statement_that_looks_at_what_it_names_is_not(db: sqlite3.Connection, sql: str) -> None:
    assert faults(db, sql) == []


@pytest.mark.parametrize(
    "code", ["db.execute('SELECT * FROM t WHERE a = ?', (1,))", "db.executemany('UPDATE t SET a = ?', [(1,)])"]
)
def test_what_the_product_runs_is_looked_at_once(code: str) -> None:
    with watched() as watch, closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (a)")
        run(db, code, __file__)
        run(db, code, f"{PRODUCT}/migrations/some.py")
        assert watch.take() == []
        run(db, code, f"{PRODUCT}/messaging/some.py")
        assert len(watch.take()) == 1
        run(db, code, f"{PRODUCT}/messaging/some.py")
        assert watch.take() == []


def test_the_tests_beside_this_one_are_watched(statements: Watched) -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.execute("CREATE TABLE t (a)")
        run(db, "db.execute('SELECT a FROM t')", f"{PRODUCT}/messaging/some.py")
    (found,) = statements.take()
    assert "SCAN t" in found


def test_what_is_listed_looks_at_too_much_still() -> None:
    made = databases()
    try:
        for sql, bound in listed().items():
            assert bound
            assert any(_is_bad(db, sql) for db in made.values()), f"strike it out of plans.toml: {sql}"
    finally:
        for db in made.values():
            db.close()


def _is_bad(db: sqlite3.Connection, sql: str) -> bool:
    try:
        return bool(faults(db, sql))
    except sqlite3.OperationalError:  # it is of another database
        return False

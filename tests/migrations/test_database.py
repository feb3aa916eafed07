"""One database: its version is read without writing, and a step that fails, or refers to nothing, is taken back."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sublet.migrations.database import KEPT_COPIES, Database, prepare
from sublet.migrations.schema import Migration, Schema, Tables
from sublet.protocol.errors import LocalCode, SubletError
from support.trees import contents

TABLES = (
    "CREATE TABLE rooms (id INTEGER PRIMARY KEY)",
    "CREATE TABLE notes (id INTEGER PRIMARY KEY, room INTEGER REFERENCES rooms (id))",
)
FIRST = Schema("the notes", 1, TABLES, application_id=7)


def next_version(schema: Schema, change: Callable[[Tables], None] = lambda _: None) -> Schema:
    """Return the schema of the version after ``schema``."""
    to = schema.version + 1
    return replace(schema, version=to, migrations=(*schema.migrations, Migration(to, "", change)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database of version 1, with a note in a room."""
    path = tmp_path / "it.db"
    with opened(path, FIRST) as database:
        database.execute("INSERT INTO rooms VALUES (1)")
        database.execute("INSERT INTO notes VALUES (1, 1)")
    return path


def opened(path: Path, schema: Schema) -> closing[sqlite3.Connection]:
    """Open a database as its owner does."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode=WAL")
    database.execute("PRAGMA foreign_keys=ON")
    try:
        prepare(database, path, schema)
    except BaseException:
        database.close()
        raise
    return closing(database)


def test_its_owner_brings_it_to_the_newest_version_and_keeps_a_copy(path: Path) -> None:
    schema = next_version(FIRST, lambda tables: tables.execute("ALTER TABLE notes ADD COLUMN body TEXT"))
    with opened(path, schema) as database:
        assert database.execute("SELECT * FROM notes").fetchall() == [(1, 1, None)]
        assert database.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert Database(path, schema).version() == 2
    copy = path.with_name("it.db.v1")
    assert Database(path, schema).copies() == {1: copy}
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.read_bytes()[18:20] == b"\1\1", "a log beside it would be a second file to put back"
    with opened(copy, FIRST) as database:  # put back, it is what it was
        assert database.execute("SELECT * FROM notes").fetchall() == [(1, 1)]


def test_rows_that_a_kill_left_in_the_log_are_in_the_copy(path: Path) -> None:
    with opened(path, FIRST) as database:
        database.execute("INSERT INTO notes VALUES (2, 1)")
        logged = {end: path.with_name(f"it.db{end}").read_bytes() for end in ("", "-wal")}
    for end, content in logged.items():
        path.with_name(f"it.db{end}").write_bytes(content)
    assert logged["-wal"]
    Database(path, next_version(FIRST)).copy()
    with opened(path.with_name("it.db.v1"), FIRST) as database:
        assert database.execute("SELECT count(*) FROM notes").fetchone() == (2,)


def broken(tables: Tables) -> None:
    """Change something, and fail."""
    tables.execute("DELETE FROM notes")
    tables.execute("INSERT INTO missing VALUES (1)")


def orphaned(tables: Tables) -> None:
    """Leave a note in no room."""
    tables.execute("DELETE FROM rooms")


@pytest.mark.parametrize(("change", "why"), [(broken, "no such table: missing"), (orphaned, "refers to one that is")])
def test_a_step_that_fails_is_taken_back(path: Path, change: Callable[[Tables], None], why: str) -> None:
    with pytest.raises(SubletError, match=why) as failed:
        opened(path, next_version(FIRST, change))
    assert failed.value.code is LocalCode.UNAVAILABLE
    with opened(path, FIRST) as database:
        assert database.execute("SELECT count(*) FROM notes JOIN rooms ON rooms.id = notes.room").fetchone() == (1,)


def test_the_connection_of_a_step_that_fails_is_left_as_it_was(path: Path) -> None:
    with opened(path, FIRST) as database:
        with pytest.raises(SubletError, match="no such table: missing"):
            prepare(database, path, next_version(FIRST, broken))
        assert not database.in_transaction
        assert database.execute("PRAGMA foreign_keys").fetchone() == (1,)


def test_a_change_is_on_the_disk_when_it_is_committed(path: Path) -> None:
    found: list[object] = []
    Database(path, next_version(FIRST, lambda tables: found.extend(tables.execute("PRAGMA synchronous")))).migrate()
    assert found == [(2,)], "FULL: each commit waits for the disk"


@pytest.mark.parametrize("logged", [False, True])
def test_a_later_version_is_refused_untouched(path: Path, logged: bool) -> None:
    with opened(path, next_version(next_version(FIRST))):
        found = contents(path.parent)
    if logged:  # as a kill leaves it: the version stands in the log alone
        for name, content in found.items():
            if not name.endswith("-shm"):
                (path.parent / name).write_bytes(content)
    before = contents(path.parent)
    assert ("it.db-wal" in before) is logged
    for _ in range(2):
        with pytest.raises(SubletError, match=r"version 3, written by Sublet 9\.9; .* up to version 1") as refused:
            Database(path, FIRST).check("9.9")
        assert refused.value.code is LocalCode.STATE_VERSION
    after = contents(path.parent)
    after.pop("it.db-shm", None)
    assert after == before


def test_a_later_version_is_refused_by_whoever_opens_it(path: Path) -> None:
    with opened(path, next_version(FIRST)):
        pass
    with pytest.raises(SubletError, match=r"version 2.* up to version 1") as refused:
        opened(path, FIRST)
    assert refused.value.code is LocalCode.STATE_VERSION


def test_one_of_before_the_first_release_is_refused(path: Path) -> None:
    later = replace(FIRST, version=3, migrations=(Migration(3, "", lambda _: None),))
    assert not Database(path, later).is_due()
    with pytest.raises(SubletError, match="takes up version 2 and later") as refused:
        opened(path, later)
    assert refused.value.code is LocalCode.STATE_VERSION


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0", None])
def test_what_is_no_database_is_left_to_its_owner(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "it.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    assert Database(path, FIRST).check() is None
    assert not Database(path, FIRST).is_due()


def test_the_database_of_another_program_is_left_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "it.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (id INTEGER)")
        other.execute("PRAGMA application_id=8")
        other.execute("PRAGMA user_version=3")
    assert Database(path, FIRST).version() is None
    assert Database(path, FIRST).check() is None
    assert not Database(path, next_version(next_version(next_version(FIRST)))).is_due()


def test_a_damaged_one_is_not_built_upon(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(SubletError, match="damaged"):
        Database(path, next_version(FIRST)).copy()
    assert path.read_bytes() == content
    assert [one.name for one in path.parent.glob("it.db.*")] == []


def test_only_the_newest_copies_are_kept(path: Path) -> None:
    schema = FIRST
    for _ in range(KEPT_COPIES + 2):
        schema = next_version(schema)
        with opened(path, schema):
            pass
    assert sorted(Database(path, schema).copies()) == list(range(schema.version - KEPT_COPIES, schema.version))


def test_a_link_in_the_place_of_the_copy_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("it.db.copy", "it.db.v1"):
        (tmp_path / name).symlink_to(victim)
    Database(path, next_version(FIRST)).copy()
    assert victim.read_text() == "precious"
    assert not (tmp_path / "it.db.v1").is_symlink()


@pytest.mark.parametrize("what", ["the copy", "its directory"])
def test_nothing_is_changed_before_the_copy_is_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    flush = os.fsync

    def failing(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode) == (what == "its directory"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(fd)

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(SubletError, match="Input/output error") as refused:
        opened(path, next_version(FIRST, broken))
    assert refused.value.code is LocalCode.UNAVAILABLE
    assert "is copied before it is changed, which failed" in refused.value.message
    assert Database(path, FIRST).version() == 1

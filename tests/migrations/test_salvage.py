"""A damaged database is noticed, and made anew from what can be read: whole or not at all, wherever it is killed."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from sublet.daemon.storage.schema import SCHEMA as STORE_SCHEMA
from sublet.migrations import damage
from sublet.migrations.salvage import KEPT_DAMAGED, damaged_files, salvage
from sublet.migrations.schema import Schema
from sublet.protocol.errors import LocalCode, SubletError
from support.damage import cut, flip_pages, pages_of
from support.salvage_kills import ROWS, SCHEMA, make_damaged, rows
from support.small_disk import small_disk
from support.trees import contents

TESTS = Path(__file__).parents[1]
TABLES = Schema(
    "all kinds of tables",
    3,
    (
        "CREATE TABLE numbered (id INTEGER PRIMARY KEY AUTOINCREMENT, body TEXT NOT NULL) STRICT",
        "CREATE TABLE named (name TEXT PRIMARY KEY, body BLOB) WITHOUT ROWID",
        "CREATE TABLE odd (name TEXT PRIMARY KEY, body TEXT)",
        "CREATE INDEX by_body ON numbered (body)",
        "CREATE VIRTUAL TABLE words USING fts5(body)",
    ),
    application_id=9,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database with all kinds of tables."""
    path = tmp_path / "it.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("PRAGMA auto_vacuum=INCREMENTAL")
        for statement in TABLES.create:
            made.execute(statement)
        made.execute("PRAGMA application_id=9")
        made.execute("PRAGMA user_version=3")
        made.execute("BEGIN")
        for number in range(2_000):
            made.execute("INSERT INTO numbered (body) VALUES (?)", (f"{number} " + "n" * 150,))
            made.execute("INSERT INTO named VALUES (?, ?)", (f"{number:06}", b"b" * 150))
            made.execute("INSERT INTO odd VALUES (?, ?)", (f"{number:06}", "o" * 150))
        made.execute("DELETE FROM numbered WHERE id > 1990")
        made.execute("COMMIT")
    return path


def count(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_a_sound_one_is_found_sound_and_a_damaged_one_is_not(path: Path) -> None:
    assert damage.first(path) == ""
    raw = path.read_bytes()
    flip_pages(path, pages_of(path, "numbered")[5])
    assert damage.look(path) == ""
    assert damage.first(path)
    path.write_bytes(raw)
    cut(path, 0.5)
    assert "it was cut" in damage.look(path)
    path.write_bytes(b"x" + raw[1:])
    assert damage.look(path) == "it is no database"
    path.write_bytes(b"")
    assert damage.look(path) == "", "one that is made by whoever opens it"


def test_an_index_that_does_not_fit_its_table_is_damage(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA writable_schema=ON")
        database.execute(
            "UPDATE sqlite_schema SET sql = 'CREATE INDEX by_body ON numbered (id)' WHERE name = 'by_body'"
        )
    assert damage.first(path)
    salvage(path, TABLES, "odd")
    assert damage.first(path) == ""
    assert count(path, "numbered") == 1_990


def test_all_that_can_be_read_is_there_again(path: Path) -> None:
    pages = {table: pages_of(path, table) for table in ("numbered", "odd")}
    flip_pages(path, *pages["numbered"][10:12], pages["numbered"][30], pages["odd"][20])
    made = salvage(path, TABLES, "noise", anew=["words"])
    assert damage.first(path) == ""
    assert made.torn == ["numbered", "odd"]
    for table, lost in (("numbered", 3), ("odd", 1)):
        assert 0 < (1_990 if table == "numbered" else 2_000) - count(path, table) <= lost * 30
    assert count(path, "named") == 2_000
    assert Path(made.kept_as).exists()
    with closing(sqlite3.connect(path)) as database:
        facts = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("user_version", "application_id")]
        assert facts == [3, 9]
        assert database.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
        database.execute("INSERT INTO numbered (body) VALUES ('next')")
        assert database.execute("SELECT max(id) FROM numbered").fetchone()[0] == 2_001, "no number comes twice"


def test_one_that_can_t_be_read_at_all_is_begun_anew(path: Path) -> None:
    path.write_bytes(b"no database" * 900)
    made = salvage(path, STORE_SCHEMA, "noise")
    assert damage.first(path) == ""
    assert "peers" in made.torn
    assert Path(made.kept_as).read_bytes() == b"no database" * 900


def test_the_newest_damaged_files_are_kept(path: Path) -> None:
    for _ in range(KEPT_DAMAGED + 2):
        salvage(path, TABLES, "noise")
    assert len(damaged_files(path)) == KEPT_DAMAGED


def test_a_full_disk_while_repairing_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    make_damaged(tmp_path / "made" / "it.db")
    with small_disk(tmp_path / "small", 200) as place:
        for name, content in contents(tmp_path / "made").items():
            if not name.endswith("-shm"):
                (place / name).write_bytes(content)
        path = place / "it.db"
        before = {name: content for name, content in contents(place).items() if not name.endswith("-shm")}
        with pytest.raises(SubletError, match="MiB are needed") as failed:
            salvage(path, SCHEMA, "noise")
        assert failed.value.code is LocalCode.UNAVAILABLE
        assert "sublet doctor --repair" in failed.value.hint
        after = {name: content for name, content in contents(place).items() if not name.endswith("-shm")}
        assert after == before
    path = tmp_path / "it.db"
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    salvage(path, SCHEMA, "noise")
    assert rows(path) > ROWS - 60


def test_killed_at_any_line_it_is_damaged_or_sound_and_goes_on(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(prefix="slt-", dir=parent) as place:
        done = subprocess.run(
            [sys.executable, "-m", "support.salvage_kills", place],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["wrong"] == []
    assert set(told["left"]) == {"damaged", "sound"}
    assert told["kills"] > 60

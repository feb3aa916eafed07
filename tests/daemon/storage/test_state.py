"""The state directory as a whole: which stores it has, and that a later one is told before anything is written."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sublet.app.stores import FACE_STORES
from sublet.daemon.storage.opening import open_database
from sublet.daemon.storage.schema import SCHEMA_VERSION
from sublet.daemon.storage.state import LAYOUT, ROOM_STORE, STORE, take_up, versions
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.protocol.errors import LocalCode, SubletError
from support.trees import contents

STORES = FACE_STORES
OLD_BUS = ("bus.key", "bus_authorities.pem")


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state directory as the first frozen version left it: no version file, and A2A tasks without one."""
    (tmp_path / "keys").mkdir()
    for name in OLD_BUS:
        (tmp_path / "keys" / name).write_text("old")
    lock, *connections = open_database(tmp_path / STORE)
    for connection in connections:
        connection.close()
    os.close(lock)
    SqliteStore(tmp_path / ROOM_STORE).close()
    name = "a2a.sqlite3"
    with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as tasks:
        for statement in STORES[name].create:
            tasks.execute(statement)
        tasks.execute("INSERT INTO a2a_task VALUES ('t', 'o', 'c', 1, 0, 5, x'00')")
    return tmp_path


def test_a_new_directory_says_who_made_it(tmp_path: Path) -> None:
    take_up(tmp_path, "1.2", STORES)
    assert json.loads((tmp_path / "state-version").read_text()) == {"layout": LAYOUT.version, "sublet": "1.2"}
    assert versions(tmp_path / "none", "1.2", STORES).detail == "none yet"


def test_the_first_frozen_form_is_taken_up_with_copies(state: Path) -> None:
    before = contents(state)
    take_up(state, "1.2", STORES)
    assert [name for name in OLD_BUS if (state / "keys" / name).exists()] == []
    assert contents(state / "files.v1") == {f"keys/{name}": before[f"keys/{name}"] for name in OLD_BUS}
    with closing(sqlite3.connect(state / "a2a.sqlite3")) as tasks:
        assert tasks.execute("PRAGMA user_version").fetchone() == (1,)
        assert tasks.execute("SELECT id FROM a2a_task").fetchall() == [("t",)]
    assert not list(state.glob("sublet.db.v*")), "what did not change is not copied"
    found = versions(state, "1.2", STORES)
    assert found.problem is None
    assert found.detail == (
        f"layout 2 of Sublet 1.2, sublet.db {SCHEMA_VERSION}, messaging.db 14, a2a.sqlite3 1; "
        "copies of older versions: files.v1, a2a.sqlite3.v0"
    )


@pytest.mark.parametrize("name", [STORE, ROOM_STORE, "a2a.sqlite3", "state-version"])
def test_a_later_version_of_any_store_is_refused_before_anything_is_written(state: Path, name: str) -> None:
    (state / "sublet.db.lock").unlink()
    if name == "state-version":
        (state / name).write_text('{"layout": 99, "sublet": "9.9"}')
    else:
        (state / "state-version").write_text('{"layout": 1, "sublet": "9.9"}')
        with closing(sqlite3.connect(state / name)) as store:
            store.execute("PRAGMA user_version=99")
    before = contents(state)
    with pytest.raises(SubletError, match=r"version 99, written by Sublet 9\.9; this program knows up to") as refused:
        take_up(state, "1.2", STORES)
    assert refused.value.code is LocalCode.STATE_VERSION
    assert refused.value.hint.startswith("Start Sublet 9.9 again.")
    assert contents(state) == before
    told = versions(state, "1.2", STORES)
    assert told.problem is not None
    assert told.problem.message == refused.value.message
    assert contents(state) == before


def test_another_daemon_keeps_the_upgrade_out(state: Path) -> None:
    lock, *connections = open_database(state / STORE)
    try:
        with pytest.raises(SubletError) as refused:
            take_up(state, "1.2", STORES)
        assert refused.value.code is LocalCode.ALREADY_RUNNING
        assert not (state / "state-version").exists()
    finally:
        for connection in connections:
            connection.close()
        os.close(lock)


@pytest.mark.parametrize("name", [ROOM_STORE, "a2a.sqlite3"])
def test_a_store_that_is_none_is_left_to_who_opens_it(state: Path, name: str) -> None:
    (state / name).unlink()
    (state / name).mkdir()
    take_up(state, "1.2", STORES)
    assert (state / name).is_dir()

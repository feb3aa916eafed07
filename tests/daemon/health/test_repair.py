"""``doctor --repair`` and ``--own-home`` where no daemon runs: only what is damaged, or a copy, is begun anew."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sublet.daemon.config.paths import Home, resolve_home
from sublet.daemon.health.repair import look, own_home, repair
from sublet.daemon.process.lock import InstanceLock
from sublet.daemon.process.own_home import own_token
from sublet.daemon.storage.opening import open_database
from sublet.daemon.storage.state import STORE
from sublet.protocol.errors import LocalCode, SubletError


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = resolve_home({"SUBLET_HOME": str(tmp_path / "home")})
    home.make()
    lock, *connections = open_database(Path(home.state_dir) / STORE)
    for connection in connections:
        connection.close()
    os.close(lock)
    return home


def test_a_sound_database_is_left_as_it_is_and_a_damaged_one_made_anew(home: Home) -> None:
    path = Path(home.state_dir) / STORE
    assert [one.ok for one in look(path.parent, {}, running=False)] == [True]
    before = path.read_bytes()
    assert [one.detail for one in repair(home, {})] == ["sound"]
    assert path.read_bytes() == before
    path.write_bytes(b"no database" * 900)
    [check] = look(path.parent, {}, running=False)
    assert not check.ok
    assert "sublet doctor --repair" in check.fix
    [done] = repair(home, {})
    assert "paired daemons" in done.detail
    assert "the damaged file is" in done.detail
    assert [one.ok for one in look(path.parent, {}, running=False)] == [True]


def test_a_database_of_another_program_is_made_anew_too(home: Home) -> None:
    path = Path(home.state_dir) / STORE
    path.unlink()
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE theirs (id INTEGER)")
        other.execute("PRAGMA application_id=7")
        other.commit()
    [check] = look(path.parent, {}, running=False)
    assert "not a database of this program" in check.detail
    [done] = repair(home, {})
    assert "made anew" in done.detail
    assert [one.ok for one in look(path.parent, {}, running=False)] == [True]


def test_nothing_is_done_beside_a_daemon(home: Home) -> None:
    with InstanceLock.acquire(home):
        for work in (lambda: repair(home, {}), lambda: own_home(home)):
            with pytest.raises(SubletError, match="already running") as refused:
                work()
            assert refused.value.code is LocalCode.ALREADY_RUNNING
            assert refused.value.hint == "Stop it first: sublet down"


def test_a_home_that_is_no_copy_is_not_begun_anew(home: Home) -> None:
    own_token(Path(home.state_dir))
    with pytest.raises(SubletError, match="no copy of another one") as refused:
        own_home(home)
    assert refused.value.code is LocalCode.CONFLICT

"""A disk that fails at each open and each removal while a state directory is brought to this version."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from attacks.kit.broken_disk import fail_each
from attacks.probe import FailureProbe, Probe
from sublet.app.stores import FACE_STORES
from sublet.daemon.storage.opening import open_database
from sublet.daemon.storage.state import LAYOUT, take_up
from support.migration_kills import found_in, make_old, run


async def upgraded(base: Path) -> None:
    """Bring a small state directory to its newest version; one in which that has failed before is gone on with."""
    state = base / "state"
    if not state.exists():
        make_old(state)
        for number in (5, 6):  # as many copies as are kept, so that one goes
            (state / f"one.db.v{number}").touch()
            (state / f"files.v{number}").mkdir()
    await asyncio.to_thread(run, state)
    assert [found_in(state / name) for name in ("one.db", "two.db")] == ["new", "new"]
    assert (state / "new" / "file").read_text() == '{"said": "said"}'
    shutil.rmtree(state)


async def taken_up(base: Path) -> None:
    """Take the state directory of the first frozen version up."""
    state = base / "state"
    if not state.exists():
        (state / "keys").mkdir(parents=True)
        lock, *connections = open_database(state / "sublet.db")
        for connection in connections:
            connection.close()
        os.close(lock)
        for name in LAYOUT.steps[0].touches:
            (state / name).write_text("old")
        with closing(sqlite3.connect(state / "a2a.sqlite3")) as tasks:
            for statement in FACE_STORES["a2a.sqlite3"].create:
                tasks.execute(statement)
    await asyncio.to_thread(take_up, state, "9.9", FACE_STORES)
    assert sorted(one.name for one in (state / "keys").iterdir()) == []
    shutil.rmtree(state)


async def _a_disk_that_fails() -> None:
    with tempfile.TemporaryDirectory(prefix="slt-") as place:
        met = await fail_each(upgraded, Path(place), ["migrations."])
        assert {"migrations.database:copy_before", "migrations.layout:_sync_tree"} <= met, met


async def _a_start_on_a_disk_that_fails() -> None:
    with tempfile.TemporaryDirectory(prefix="slt-") as place:
        met = await fail_each(taken_up, Path(place), ["migrations.", "daemon.storage."])
        assert {"daemon.storage.state:_drop_old_bus", "daemon.storage.opening:lock_database"} <= met, met


PROBES: tuple[Probe, ...] = (
    FailureProbe(
        name="upgrading: a disk that fails at each place of an upgrade",
        covers=[
            "migrations.database:_remove",
            "migrations.database:_sync",
            "migrations.database:copy_before",
            "migrations.database:migrate",
            "migrations.layout:LayoutFiles.copy",
            "migrations.layout:LayoutFiles.migrate",
            "migrations.layout:_sync_tree",
        ],
        throw=_a_disk_that_fails,
    ),
    FailureProbe(
        name="upgrading: a start on a disk that fails",
        covers=["daemon.storage.opening:lock_database", "daemon.storage.state:_drop_old_bus"],
        throw=_a_start_on_a_disk_that_fails,
    ),
)

"""What a purge leaves to be done is done: at once, once nobody reads any more, and after a kill at any line."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from sublet.messaging.erasing.erasing import Erasing
from sublet.messaging.ports.purge_store import Due
from support.purge_kills import erasing, finish, make, opened


def left_in(place: Path) -> list[str]:
    return [one.name for one in place.rglob("*") if one.is_file() and b"Xenophon" in one.read_bytes()]


@pytest.mark.timeout(400)
def test_a_purge_that_is_killed_at_any_line_is_finished_at_the_next_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.purge_kills", tmp_path / "k"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["whole"] > 0
    assert told["gone"] > 5
    assert told["wrong"] == []


def test_what_sqlite_has_left_in_the_file_and_copies_of_it_go_as_well(tmp_path: Path) -> None:
    place = tmp_path / "home"
    room, ref = make(place)
    shutil.copy(place / "messaging.db", place / "messaging.db.v13")
    peer = opened(place, 2)
    peer.store._db.execute("PRAGMA secure_delete=OFF")  # as if all of it had been moved before
    peer.do("purge.message", room_id=room, ref_id=ref)
    peer.store.purges.checkpoint()
    assert {"messaging.db", "messaging.db.v13"} <= set(left_in(place))
    finish(peer)
    assert left_in(place) == []
    assert not (place / "messaging.db.v13").exists()
    assert peer.do("timeline.get_ref", room_id=room, ref_id=ref)["purged"]
    peer.store.close()


def test_somebody_who_reads_keeps_it_from_ending_and_not_from_being_tried_again(tmp_path: Path) -> None:
    place = tmp_path / "home"
    room, ref = make(place)
    peer = opened(place, 2)
    peer.store._db.execute("PRAGMA busy_timeout=1")
    with closing(sqlite3.connect(place / "messaging.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM log").fetchone()
        peer.do("purge.message", room_id=room, ref_id=ref)
        tool: Erasing = erasing(peer)
        assert not anyio.run(tool.everything)
        assert peer.store.purges.due(Due.DISK, 9)
        reader.execute("COMMIT")
    assert anyio.run(tool.everything)
    assert not peer.store.purges.due(Due.DISK, 9)
    assert left_in(place) == []
    peer.store.close()

"""A state directory is brought to this version whole, or stays what it was: killed anywhere, or without any room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sublet.migrations.upgrade import upgrade
from sublet.protocol.errors import LocalCode, SubletError
from support.migration_kills import found_in, make_old, run, stores
from support.small_disk import small_disk
from support.trees import contents

TESTS = Path(__file__).parents[1]


def test_killed_at_any_line_it_is_old_or_new_and_the_next_start_ends_it(tmp_path: Path) -> None:
    # In memory where that is possible: a kill of a process does not ask what is on the disk already.
    memory = Path("/dev/shm")
    parent = memory if os.access(memory, os.W_OK) else tmp_path
    with tempfile.TemporaryDirectory(prefix="slt-", dir=parent) as place:
        done = subprocess.run(
            [sys.executable, "-m", "support.migration_kills", place],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["wrong"] == []
    assert told["kills"] > 100
    assert {"old old old", "moving old old", "moving new old", "moving new new", "new new new"} == set(told["left"])


def test_a_newer_store_is_refused_before_any_is_written(tmp_path: Path) -> None:
    state = tmp_path / "state"
    make_old(state)
    databases, files = stores(state)
    with databases[0].path.open("r+b") as file:
        file.seek(60)
        file.write((4).to_bytes(4, "big"))
    before = contents(state)
    with pytest.raises(SubletError) as refused:
        upgrade(databases, files)
    assert refused.value.code is LocalCode.STATE_VERSION
    assert f"the notes in {state / 'one.db'} has version 4" in refused.value.message
    assert "up to version 3" in refused.value.message
    after = contents(state)
    after.pop("two.db-shm", None)  # which reading a log that a kill has left makes
    assert after == before


def test_files_of_a_newer_layout_are_refused_before_any_store_is_written(tmp_path: Path) -> None:
    state = tmp_path / "state"
    make_old(state)
    (state / "state-version").write_text(json.dumps({"layout": 99, "sublet": "9.9"}))
    before = contents(state)
    with pytest.raises(SubletError, match=r"version 99, written by Sublet 9\.9") as refused:
        upgrade(*stores(state))
    assert refused.value.code is LocalCode.STATE_VERSION
    assert contents(state) == before


def outcome(state: Path) -> str:
    """Run the upgrade and return how it ended: ``done``, or what there was no room for."""
    try:
        run(state)
    except SubletError as refused:
        if refused.code is not LocalCode.UNAVAILABLE or "Make room" not in refused.hint:
            return str(refused)
        return "copy" if "is copied before it is changed, which failed" in refused.message else "change"
    return "done"


def test_however_little_room_there_is_all_changes_or_nothing(tmp_path: Path) -> None:
    told: set[str] = set()
    with small_disk(tmp_path / "disk", 600) as disk:
        state, full = disk / "state", disk / "full"
        for spare in range(0, 320 << 10, 8 << 10):
            make_old(state)
            before = contents(state / "old")
            full.write_bytes(b"x" * (os.statvfs(disk).f_bavail * 4096 - spare))
            how = outcome(state)
            told.add(how)
            expected = "new" if how == "done" else "old"
            full.unlink()
            assert [found_in(state / name) for name in ("one.db", "two.db")] == [expected] * 2
            if expected == "old":
                assert contents(state / "old") == before
                assert not list(state.glob("*.copy"))
                run(state)  # and with room it goes on
                assert [found_in(state / name) for name in ("one.db", "two.db")] == ["new"] * 2
    assert told == {"copy", "change", "done"}


def test_a_second_time_does_nothing(tmp_path: Path) -> None:
    state = tmp_path / "state"
    make_old(state)
    run(state)
    before = contents(state)
    run(state)
    assert contents(state) == before

"""Logins of the web page: how long they last, and what is left of them on the disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sublet.web.sessions import SESSION_SECONDS, Sessions

pytestmark = pytest.mark.anyio


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


async def test_a_session_outlives_a_restart_but_not_its_time(tmp_path: Path) -> None:
    clock = Clock()
    made = await Sessions(tmp_path / "s.json", clock).begin()
    again = Sessions(tmp_path / "s.json", clock)
    found = again.find(made.cookie, made.key)
    assert found is not None
    assert again.goes_on(found)
    clock.now += SESSION_SECONDS
    assert again.find(made.cookie, made.key) is None
    assert not again.goes_on(found)


async def test_no_secret_lies_on_the_disk_and_nobody_else_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    made = await Sessions(path).begin()
    kept = path.read_text()
    assert made.cookie not in kept
    assert made.key not in kept
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_session_that_ended_is_forgotten_also_by_the_next_process(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "s.json")
    made = await sessions.begin()
    found = sessions.find(made.cookie, made.key)
    assert found is not None
    await sessions.end(found)
    assert not sessions.goes_on(found)
    assert Sessions(tmp_path / "s.json").find(made.cookie, made.key) is None


async def test_a_file_that_is_spoilt_logs_nobody_in(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    for spoilt in (b"", b"{", b"[1]", b"\xff", b'[{"cookie_hash": "x"}]'):
        path.write_bytes(spoilt)
        assert Sessions(path).find("", "") is None
    path.unlink()
    os.mkfifo(path)
    assert Sessions(path).find("", "") is None
    made = await Sessions(path).begin()
    assert Sessions(path).find(made.cookie, made.key) is not None


async def test_a_session_of_a_clock_that_was_ahead_does_not_count(tmp_path: Path) -> None:
    clock = Clock()
    clock.now += 10 * SESSION_SECONDS
    made = await Sessions(tmp_path / "s.json", clock).begin()
    clock.now -= 10 * SESSION_SECONDS
    assert Sessions(tmp_path / "s.json", clock).find(made.cookie, made.key) is None


async def test_what_can_not_be_kept_counts_in_this_process(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "missing" / "s.json")
    made = await sessions.begin()
    assert sessions.find(made.cookie, made.key) is not None

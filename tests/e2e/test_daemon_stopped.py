"""A daemon whose process is stopped answers nobody: commands say so soon, and it can be ended."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon

SOON_SECONDS = 30
"""Less than the minute for which a command waits for a daemon that runs."""


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path / "home").up()
    daemon.kill(signal.SIGSTOP)
    yield daemon
    if daemon.alive():
        daemon.kill(signal.SIGCONT)
        daemon.down()


def test_commands_say_that_the_daemon_is_stopped(stopped: Daemon) -> None:
    for command in (["status"], ["ls"], ["room", "list"]):
        done = stopped.run(*command, check=None, timeout=SOON_SECONDS)
        assert done.returncode != 0
        assert f"the daemon (pid {stopped.pid}) does not answer, since its process is stopped" in done.stderr
        assert f"kill -CONT {stopped.pid}" in done.stderr
    told = stopped.json("doctor", check=None, timeout=SOON_SECONDS)
    assert told["daemon"]
    assert not told["ok"]
    [check] = [one for one in told["checks"] if one["name"] == "daemon"]
    assert "its process is stopped" in check["detail"]


def test_a_stopped_daemon_can_be_ended(stopped: Daemon) -> None:
    stopped.run("down", timeout=SOON_SECONDS)
    stopped.wait_gone()


def test_one_that_goes_on_answers_again(stopped: Daemon) -> None:
    stopped.kill(signal.SIGCONT)
    assert stopped.json("status")["pid"] == stopped.pid

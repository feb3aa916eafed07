"""Starting and stopping the real daemon: what scripts get, what is left of the caller, what a failure says.

What looks at the process itself starts the program; all others are forks of what has loaded it, which do the same.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.daemons import Daemon

FREE_PORTS = ("--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0")


def sublet(home: Path, *argv: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run the program with a home of its own."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "sublet", *argv],
        env={**os.environ, "SUBLET_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def forked(home: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a fork of what has loaded it, and its daemon in another one."""
    return Daemon(home).run(*argv, check=None)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Return a home whose daemon is stopped afterwards."""
    yield tmp_path / "home"
    forked(tmp_path / "home", "down")


def started(home: Path, run: Callable[..., subprocess.CompletedProcess[str]] = forked) -> dict[str, Any]:
    """Start a daemon in the background and return what it printed."""
    done = run(home, "up", "--detach", "--json", *FREE_PORTS)
    assert (done.returncode, done.stderr) == (0, "")
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def test_a_detached_daemon_is_ready_and_keeps_nothing_of_its_caller(home: Path, tmp_path: Path) -> None:
    body = started(home, partial(sublet, cwd=tmp_path))

    assert body.keys() >= {"pid", "home", "node_id", "fingerprint", "a2a_url", "sftp"}
    assert body["home"] == str(home)
    assert json.loads(sublet(home, "status", "--json").stdout)["pid"] == body["pid"]
    process = psutil.Process(body["pid"])
    assert process.cwd() == "/"
    assert os.getsid(process.pid) == process.pid
    assert process.terminal() is None
    assert "PWD" not in process.environ()
    opened = {os.path.realpath(f"/proc/{process.pid}/fd/{number}") for number in (0, 1, 2)}
    log = home / "state" / "daemon.log"
    assert opened == {os.devnull, str(log)}
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_its_log_is_structured_and_holds_nothing_else(home: Path) -> None:
    started(home)

    entries = [json.loads(line) for line in (home / "state" / "daemon.log").read_text().splitlines()]
    assert any(entry["event"] == "ready" for entry in entries)


def test_a_second_start_names_the_owner_and_exits_with_3(home: Path) -> None:
    pid = started(home)["pid"]
    again = forked(home, "up", "--detach", "--json", *FREE_PORTS)

    assert (again.returncode, again.stderr) == (3, "")
    error = json.loads(again.stdout)["error"]
    assert error["code"] == "ALREADY_RUNNING"
    assert f"pid {pid}" in error["message"]
    foreground = forked(home, "up", *FREE_PORTS)
    assert foreground.returncode == 3
    assert f"pid {pid}" in foreground.stderr


def test_down_waits_until_it_is_gone(home: Path) -> None:
    pid = started(home)["pid"]
    done = forked(home, "down", "--json")

    assert json.loads(done.stdout) == {"stopped": True, "pid": pid}
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert forked(home, "status").returncode == 4


def test_down_stops_a_daemon_that_does_not_answer(home: Path) -> None:
    pid = started(home)["pid"]
    control = home / "run" / "control.sock"
    (home / "file").touch()
    (home / "file").replace(control)  # a socket that is gone for a moment is made again
    assert forked(home, "status").returncode == 4

    assert json.loads(forked(home, "down", "--json").stdout) == {"stopped": True, "pid": pid}
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_start_that_fails_shows_the_daemons_own_error(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = forked(home, "up", "--detach", "--json", "--a2a", address, "--sftp", "127.0.0.1:0")

    error = json.loads(done.stdout)["error"]
    assert done.returncode == 1
    assert error["code"] == "UNAVAILABLE"
    assert address in error["message"]
    assert forked(home, "status").returncode == 4


def test_a_broken_agent_file_is_the_callers_fault(home: Path, tmp_path: Path) -> None:
    (tmp_path / "agent.json").write_text('{"id": "x", "nonsense": 1}')
    done = sublet(home, "up", "--detach", "--json", *FREE_PORTS, "--agent", "agent.json", cwd=tmp_path)

    assert done.returncode == 2
    assert str(tmp_path / "agent.json") in json.loads(done.stdout)["error"]["message"]


def test_a_daemon_that_dies_at_the_start_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o700)
    (home / "state").mkdir(mode=0o700)
    (home / "state" / "sublet.db").write_bytes(b"this is no database" * 1000)
    done = forked(home, "up", "--detach", "--json", *FREE_PORTS)

    assert done.returncode == 1
    assert json.loads(done.stdout)["error"]["code"] == "UNAVAILABLE"
    assert "Traceback" not in done.stderr


def test_foreground_stops_on_sigint_and_says_where_it_listens(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "sublet", "up", "--json", *FREE_PORTS],
        env={**os.environ, "SUBLET_HOME": str(home)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        body = json.loads(process.stdout.readline())
        assert body["pid"] == process.pid
        assert body["a2a_url"].startswith("http://127.0.0.1:")
        process.send_signal(2)
        assert process.wait() == 0

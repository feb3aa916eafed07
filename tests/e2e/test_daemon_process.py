"""The daemon as a process: where it starts, what it says when it can't, and how it stops at a signal (DESIGN 3)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from support.daemons import SUBLET, Daemon
from support.leftovers import left_behind

STOP_SECONDS = 5.0
"""What DESIGN 3 promises from SIGTERM or SIGINT to the end of the process."""
FREE = ("--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0")


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Daemon]:
    """A daemon that is not started yet, and is stopped afterwards."""
    daemon = Daemon(tmp_path / "home")
    yield daemon
    daemon.down()


def failure(daemon: Daemon, *options: str, check: int = 1) -> dict[str, str]:
    """Start a daemon that can't start, by both ways of starting it, and return what it says about it."""
    foreground = daemon.run("up", *options, check=(check,))
    assert foreground.stdout == ""
    detached = daemon.run("up", "--detach", "--json", *options, check=(check,))
    error: dict[str, str] = json.loads(detached.stdout)["error"]
    for text in (foreground.stderr, detached.stderr):
        assert "Traceback" not in text
    assert error["message"] in " ".join(foreground.stderr.split())
    assert error["hint"]
    return error


# Starting


def test_a_default_port_that_is_taken_gives_way(alone: Daemon) -> None:
    with socket.socket() as first, socket.socket() as second:
        for taken, port in ((first, 8642), (second, 8622)):
            with suppress(OSError):  # somebody else has it, which is as good
                taken.bind(("127.0.0.1", port))
                taken.listen()
        alone.info = alone.json("up", "--detach")

        assert alone.info["a2a_url"].rpartition(":")[2] not in ("8642", "0")
        assert alone.info["sftp"].rpartition(":")[2] not in ("8622", "0")
        with httpx.Client(base_url=alone.info["a2a_url"], trust_env=False) as client:
            card = client.get("/.well-known/agent-card.json").json()
        assert card["url"] == f"{alone.info['a2a_url']}/"
        assert alone.info["a2a_url"] in alone.json("pair")["link"]


@pytest.mark.parametrize("name", ["a2a", "sftp"])
def test_a_chosen_port_that_is_taken_is_an_error(alone: Daemon, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        other = "sftp" if name == "a2a" else "a2a"
        error = failure(alone, f"--{name}", address, f"--{other}", "127.0.0.1:0")
    assert error["code"] == "UNAVAILABLE"
    assert address in error["message"]
    assert left_behind(alone) == []


def test_a_home_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir(mode=0o700)
    (tmp_path / "open" / "state").mkdir()
    (tmp_path / "open" / "state").chmod(0o755)
    (tmp_path / "link").mkdir(mode=0o700)
    (tmp_path / "link" / "state").symlink_to(tmp_path)
    # Not even root makes a directory in /sys.
    for home, words in (
        (Path("/sys/sublet-test"), "can't be used"),
        (tmp_path / "file", "can't be used"),
        (tmp_path / "open", "others may enter it"),
        (tmp_path / "link", "not a directory"),
    ):
        error = failure(Daemon(home), *FREE)
        assert error["code"] == "UNAVAILABLE"
        assert words in error["message"]
        assert str(home) in error["message"]


def test_a_damaged_database_is_an_error_that_names_it_and_leaves_it_alone(alone: Daemon) -> None:
    alone.up().down()
    database = alone.home / "state" / "sublet.db"
    whole = database.read_bytes()
    for damaged in (b"no database" * 4096, whole[:100] + b"\xff" * (len(whole) - 100)):
        database.write_bytes(damaged)
        error = failure(alone, *FREE)
        assert error["code"] == "UNAVAILABLE"
        assert str(database) in error["message"]
        assert database.read_bytes() == damaged
    database.write_bytes(whole)
    alone.up()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[" * 100_000, "JSON"),
        ('{"id": "../x", "provider": {"type": "command", "argv": ["sh"]}}', "id"),
        ('{"id": "x", "role": "executor", "provider": {"type": "acp"}}', "preset or the argv"),
        ('{"id": "x", "nonsense": 1, "provider": {"type": "command", "argv": ["sh"]}}', "nonsense"),
    ],
)
def test_an_agent_file_that_is_wrong_is_named_with_what_is_wrong(alone: Daemon, text: str, words: str) -> None:
    file = alone.home.with_name("agent.json")
    file.write_text(text)
    done = alone.run("up", "--detach", "--json", *FREE, "--agent", str(file), check=(2,))
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "INVALID_ARGUMENT"
    assert str(file) in error["message"]
    assert words in error["message"]
    assert len(error["message"]) < 1000


def test_a_second_daemon_of_the_same_home_names_the_first(alone: Daemon) -> None:
    alone.up()
    error = failure(alone, *FREE, check=3)
    assert error["code"] == "ALREADY_RUNNING"
    assert f"pid {alone.pid}" in error["message"]
    assert alone.json("status")["pid"] == alone.pid


def test_the_configuration_is_shown_with_and_without_a_daemon(alone: Daemon) -> None:
    def shown() -> dict[str, tuple[str, str]]:
        values = alone.json("config", "show")["values"]
        return {one["name"]: (one["origin"], str(one["value"])) for one in values}

    assert shown()["a2a"] == ("default", "127.0.0.1:8642")
    alone.info = alone.json("up", "--detach", *FREE)
    assert shown()["a2a"] == ("option", "127.0.0.1:0")
    (alone.home / "config" / "config.json").write_text('{"messaging": {"max_hops": 3}}')
    assert shown()["messaging.max_hops"] == ("default", "32"), "what the daemon runs with"
    told = alone.run("config", "--chosen")
    assert "--a2a" in told.stdout
    assert "the daemon began" in told.stderr


def test_doctor_and_status_tell_whether_a_daemon_runs(alone: Daemon) -> None:
    assert json.loads(alone.run("status", "--json", check=(4,)).stdout)["error"]["code"] == "DAEMON_UNAVAILABLE"
    without = alone.json("doctor")
    alone.up()
    with_it = alone.json("doctor")

    assert (without["daemon"], with_it["daemon"]) == (False, True)
    assert without["ok"]
    assert with_it["ok"]
    names = {check["name"] for check in with_it["checks"]}
    assert names >= {"sshfs", "git", "mounts", "state directory", "staging"}
    assert all(check["ok"] or check["fix"] for check in with_it["checks"])
    assert alone.json("status")["sandbox"] == "bubblewrap"


# Stopping


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_foreground_daemon_stops_at_a_signal_and_logs_structured_lines(alone: Daemon, number: signal.Signals) -> None:
    with subprocess.Popen(
        [SUBLET, "up", "--json", *FREE],
        env=alone.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        alone.info = json.loads(process.stdout.readline())
        began = time.monotonic()
        process.send_signal(number)
        process.send_signal(number)  # in a hurry
        stdout, stderr = process.communicate()
        assert time.monotonic() - began < STOP_SECONDS
        assert (process.returncode, stdout) == (0, "")
    entries = [json.loads(line) for line in stderr.splitlines()]
    assert [entry["event"] for entry in entries if entry["logger"] == "sublet.app.daemon"] == ["ready", "stopping"]
    assert left_behind(alone) == []


def test_a_hangup_that_is_to_be_ignored_is_ignored(alone: Daemon) -> None:
    """As under ``nohup``."""
    with subprocess.Popen(
        ["nohup", SUBLET, "up", "--json", *FREE],
        env=alone.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        alone.info = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGHUP)
        assert alone.json("status")["pid"] == process.pid
        alone.json("down")
        assert process.wait() == 0

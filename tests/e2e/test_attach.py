"""Going along with work on real daemons: attach, follow over a restart, what is done for others, hooks, reload."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import SHELL_AGENT, Daemon, two_daemons, wait_for

STEPS = "echo one; echo x >file; while [ ! -e go ]; do sleep 0.1; done; echo two; exit 3"
SPEAKING = STEPS.replace("do sleep 0.1", "do if [ -e speak ]; then echo still here; fi; sleep 0.5")
"""The same, but it goes on speaking while it waits, once there is a file ``speak``."""
READ_SECONDS = 20.0


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the delegator's hook writes what it is told."""
    told = tmp_path_factory.mktemp("hook") / "told"
    told.touch()
    return told


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory, told: Path) -> Iterator[tuple[Daemon, Daemon]]:
    base = tmp_path_factory.mktemp("att")
    config = base / "a" / "config"
    config.mkdir(parents=True, mode=0o700)
    (config / "config.json").write_text(json.dumps({"hooks": {"on_end": ["tee", "-a", str(told)]}}))
    with two_daemons(base) as pair:
        yield pair


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    return project


def begun(delegator: Daemon, project: Path, steps: str = STEPS) -> str:
    """Start work that waits for a file ``go`` and ends with 3, and return its id once it runs."""
    started = delegator.json("delegate", str(project), "--to", "bob", steps, "--background")
    wait_for(lambda: (project / "file").exists(), what="the work's begin")
    return str(started["delegation_id"])


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, daemon: Daemon, *arguments: str) -> None:
        self.seen = ""
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sublet", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**daemon.environment(), "TERM": "xterm", "COLUMNS": "120"},
            start_new_session=True,
        )
        os.close(slave)
        os.set_blocking(self._master, False)

    def until(self, *words: str) -> None:
        """Read until all of ``words`` were on the screen."""
        deadline = time.monotonic() + READ_SECONDS
        while not all(word in self.seen for word in words):
            assert time.monotonic() < deadline, self.seen
            try:
                self.seen += os.read(self._master, 65_536).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        assert all(word in self.seen for word in words), self.seen

    def end(self) -> int:
        """Return the exit status once the command has ended, with all it said read."""
        try:
            return self.process.wait(READ_SECONDS)
        finally:
            os.close(self._master)


def test_attach_shows_the_log_and_how_it_stands_and_ctrl_c_only_detaches(
    daemons: tuple[Daemon, Daemon], project: Path
) -> None:
    delegator, _ = daemons
    work = begun(delegator, project)
    screen = Terminal(delegator, "attach", work)
    screen.until("one", "running", "so far", "left", "1 file touched")
    screen.process.send_signal(signal.SIGINT)
    screen.until("Detached; the work goes on")
    assert screen.end() == 130
    assert delegator.json("output", work)["state"] == "running"
    again = Terminal(delegator, "attach", work, "--lines", "1")
    again.until("one")
    (project / "go").touch()
    again.until("two", "exit code 3")
    assert again.end() == 1


def test_attach_works_without_a_terminal(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    delegator, _ = daemons
    work = begun(delegator, project)
    (project / "go").touch()
    done = delegator.run("attach", work, check=(1,))
    assert "bob │ two" in done.stderr
    assert "so far" in done.stderr or "after" in done.stderr  # it may be over before anybody looks
    assert "exit code 3" in done.stdout


def test_output_goes_on_where_an_earlier_reader_stopped(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    delegator, _ = daemons
    work = begun(delegator, project)
    # A file of the work is there before its words are, which come by another way.
    first = wait_for(lambda: found if (found := delegator.json("output", work))["output"] else None, what="the words")
    assert "".join(piece["text"] for piece in first["output"]) == "one\n"
    (project / "go").touch()
    rest = delegator.json("output", work, "--follow", "--cursor", str(first["cursor"]), check=(1,))
    assert "".join(piece["text"] for piece in rest["output"]) == "two\n"


def test_the_owner_sees_what_is_done_for_others(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    delegator, executor = daemons
    work = begun(delegator, project)
    [shown] = executor.json("work")["assignments"]
    assert (shown["delegation_id"], shown["state"], shown["agent"]) == (work, "active", "shell")
    assert shown["remaining_seconds"] > 0
    assert work[:12] in executor.run("work").stdout
    (project / "go").touch()
    delegator.run("output", work, "--follow", check=(1,))
    newest = executor.json("work", "--all")["assignments"][0]
    assert (newest["delegation_id"], newest["outcome"], newest["exit_code"]) == (work, "failed", 3)
    assert executor.json("work")["assignments"] == []


def test_who_waits_is_told_for_whom(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    delegator, _ = daemons
    first = begun(delegator, project)
    second = str(delegator.json("delegate", str(project), "--to", "bob", "true", "--background")["delegation_id"])
    queued = wait_for(lambda: delegator.json("output", second)["condition"], what="the queue")
    assert (queued["kind"], queued["position"]) == ("queued", 1)
    assert queued["detail"].startswith(f"{first} holds this directory")
    (project / "go").touch()
    assert delegator.json("output", second, "--follow")["state"] == "completed"


def test_a_reload_puts_both_files_in_force_or_none(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    delegator, executor = daemons
    file, policy = executor.home.with_name("b-agent.json"), executor.home / "config" / "policy.json"
    first = file.read_text()
    file.write_text(json.dumps({**SHELL_AGENT, "id": "second"}))
    policy.write_text('{"version": 1, "limits": {"max_ttl_seconds": 60}}')
    assert executor.json("reload")["agents"] == ["second"]
    ended = delegator.json("delegate", str(project), "--to", "bob/second", "true")
    assert (ended["state"], ended["ttl_seconds"], ended["requested_ttl_seconds"]) == ("completed", 60, 3600)
    policy.write_text('{"version": 1, "limits": {"max_ttl_seconds": 0}}')
    file.write_text(first)
    refused = executor.json("reload", check=(2,))
    assert refused["error"]["code"] == "INVALID_ARGUMENT"
    assert "policy.json" in refused["error"]["message"]
    assert executor.json("status")["agents"] == ["second"]
    policy.unlink()
    assert executor.json("reload")["agents"] == ["shell"]


def test_the_hook_of_the_configuration_runs_at_the_end(
    daemons: tuple[Daemon, Daemon], project: Path, told: Path
) -> None:
    delegator, _ = daemons
    ended = delegator.json("delegate", str(project), "--to", "bob", "echo done; exit 4", check=(1,))
    line = wait_for(lambda: [text for text in told.read_text().splitlines() if ended["delegation_id"] in text])[0]
    view = json.loads(line)
    assert (view["state"], view["result"]["exit_code"]) == ("error", 4)


def test_c13_changes_at_the_lender_are_told_where_no_file_watcher_sees_them(
    daemons: tuple[Daemon, Daemon], project: Path
) -> None:
    delegator, _ = daemons
    script = "echo mine >file; until grep -q 'added theirs.txt' $SUBLET_META/changes.txt; do sleep 0.2; done; echo seen"
    started = delegator.json("delegate", str(project), "--to", "bob", script, "--watch", "--background")
    wait_for(lambda: (project / "file").exists(), what="the work's begin")
    work = started["delegation_id"]
    # The first look is what later ones compare with, so the file comes again and again until it is told.
    wait_for(lambda: written(project) and delegator.json("output", work)["state"] != "running", 40, "the agent's end")
    followed = delegator.run("attach", work)
    assert "not by the executor: added theirs.txt" in followed.stderr
    assert "seen" in followed.stdout
    assert "file" not in [line.split()[-1] for line in followed.stderr.splitlines() if "not by the executor" in line]


def written(project: Path) -> bool:
    """Remove and write a file that is not the executor's."""
    (project / "theirs.txt").unlink(missing_ok=True)
    time.sleep(1.5)
    (project / "theirs.txt").write_text("theirs")
    time.sleep(1.5)
    return True


def test_following_goes_on_over_a_restart_of_the_daemon(daemons: tuple[Daemon, Daemon], project: Path) -> None:
    delegator, _ = daemons
    work = begun(delegator, project, SPEAKING)
    follower = subprocess.Popen(
        [sys.executable, "-m", "sublet", "output", work, "--follow"],
        env=delegator.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert follower.stdout is not None
    said = ""
    while "one" not in said:
        said += follower.stdout.readline()
    delegator.kill()
    delegator.up()
    # Words that are said before it is heard again are told with the end alone, so it speaks until it is.
    (project / "speak").touch()
    rest = ""
    while "still here" not in rest:
        line = follower.stdout.readline()
        assert line, rest
        rest += line
    (project / "go").touch()
    rest += follower.communicate(timeout=READ_SECONDS * 3)[0]
    assert follower.returncode == 1, rest
    assert "bob │ two" in rest, "the work went on, and so did the log"
    assert "exit code 3" in rest
    assert (said + rest).count("bob │ one") == 1, "nothing is told twice"

"""What scripts may rely on, with two real daemons, a real mount and a shell as the executor's agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FREE_PORTS = ("--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0")
AGENT = {
    "id": "shell",
    "description": "Runs scripts.",
    "provider": {"type": "command", "argv": ["sh", "-s"]},
}


@dataclass
class Daemon:
    """A daemon with a home of its own, used through the program alone."""

    home: Path

    def start(self, *argv: str) -> subprocess.Popen[str]:
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "sublet", *argv],
            env={**os.environ, "SUBLET_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(self, *argv: str, status: int = 0) -> Any:
        """Run a command with ``--json``, check its exit status and return its object."""
        with self.start(*argv, "--json") as process:
            out, err = process.communicate()
        assert (process.returncode, err) == (status, ""), out
        return json.loads(out)


@pytest.fixture(scope="module")
def alice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Return a lender whose peer ``bob`` runs the prompt as a script."""
    folder = tmp_path_factory.mktemp("pair")
    agent = folder / "agent.json"
    agent.write_text(json.dumps(AGENT))
    lender, worker = Daemon(folder / "alice"), Daemon(folder / "bob")
    try:
        worker.call("up", "--detach", "--agent", str(agent), *FREE_PORTS)
        lender.call("up", "--detach", *FREE_PORTS)
        lender.call("peers", "add", worker.call("pair")["link"], "--name", "bob")
        yield lender
    finally:
        lender.call("down")
        worker.call("down")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Return a directory with a file and a secret."""
    (tmp_path / "old.txt").write_text("one\n")
    (tmp_path / ".env").write_text("KEY=secret\n")
    return tmp_path


def test_delegate_completes_and_reports(alice: Daemon, workspace: Path) -> None:
    script = "echo two >> old.txt; echo new > new.txt; ls -A; echo $SUBLET_NOTHING done"
    body = alice.call("delegate", str(workspace), script, "--to", "bob", "--ttl", "60")

    assert body["state"] == "completed"
    assert "done" in body["result"]["final_summary"]
    assert body["error"] is None
    assert body["hidden"] == [".env"]
    assert (body["audit"]["added"], body["audit"]["changed"], body["audit"]["deleted"]) == (
        ["new.txt"],
        ["old.txt"],
        [],
    )
    assert (workspace / "old.txt").read_text() == "one\ntwo\n"

    found = body["delegation_id"]
    shown = alice.call("output", found)
    assert "new.txt" in "".join(piece["text"] for piece in shown["output"])
    assert ".env" not in "".join(piece["text"] for piece in shown["output"])
    assert alice.call("audit", found)["added"] == ["new.txt"]
    assert "+two" in alice.call("audit", found, "--patch")["patch"]
    assert found in {entry["delegation_id"] for entry in alice.call("ls", "--all")["delegations"]}
    assert found not in {entry["delegation_id"] for entry in alice.call("ls")["delegations"]}


def test_read_only_is_read_only(alice: Daemon, workspace: Path) -> None:
    script = "cat old.txt; echo x > new.txt && echo wrote"
    body = alice.call("delegate", str(workspace), script, "--to", "bob", "--ro", status=1)

    assert (body["state"], body["error"]["code"]) == ("error", "TASK_FAILED")
    assert not (workspace / "new.txt").exists()
    assert body["audit"]["added"] == []


def test_a_task_that_fails_is_an_error_with_a_way_on(alice: Daemon, workspace: Path) -> None:
    body = alice.call("delegate", str(workspace), "echo tried; echo why >&2; exit 3", "--to", "bob", status=1)

    error = body["error"]
    assert (error["code"], error["message"]) == ("TASK_FAILED", "bob: the agent ended with exit code 3")
    assert f"sublet output {body['delegation_id']}" in error["hint"]
    assert (body["result"]["final_summary"], body["result"]["exit_code"]) == ("tried\n\nwhy", 3)


def test_a_lease_that_runs_out_exits_with_7(alice: Daemon, workspace: Path) -> None:
    body = alice.call("delegate", str(workspace), "sleep 30", "--to", "bob", "--ttl", "1", status=7)

    assert (body["state"], body["error"]["code"]) == ("expired", "EXPIRED")


def test_background_work_is_cancelled(alice: Daemon, workspace: Path) -> None:
    body = alice.call("delegate", str(workspace), "sleep 30", "--to", "bob", "--background")
    found = body["delegation_id"]

    assert found in {entry["delegation_id"] for entry in alice.call("ls")["delegations"]}
    assert alice.call("cancel", found)["state"] == "cancelled"
    assert alice.call("cancel", found)["state"] == "cancelled"
    assert alice.call("output", found, "--follow", status=6)["state"] == "cancelled"


def test_what_can_not_be_lent_or_reached_says_why(alice: Daemon, workspace: Path) -> None:
    assert alice.call("delegate", str(workspace), "x", "--to", "eve", status=1)["error"]["code"] == "PEER_UNKNOWN"
    gone = alice.call("delegate", str(workspace / "gone"), "x", "--to", "bob", status=1)
    assert gone["error"]["code"] == "WORKSPACE_NOT_FOUND"
    assert alice.call("output", "dlg_" + "0" * 32, status=1)["error"]["code"] == "NOT_FOUND"


def test_ctrl_c_without_a_terminal_detaches(alice: Daemon, workspace: Path) -> None:
    (workspace / "go").mkdir()
    script = "echo begun; until [ -e go/on ]; do sleep 0.05; done; echo ended"
    with alice.start("delegate", str(workspace), script, "--to", "bob", "--ttl", "60") as process:
        assert process.stderr is not None
        found = process.stderr.readline().split()[0]
        while "begun" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()

    assert (process.returncode, out) == (130, "")
    assert f"sublet attach {found}" in err
    (workspace / "go" / "on").touch()
    assert "ended" in alice.call("output", found, "--follow")["result"]["final_summary"]

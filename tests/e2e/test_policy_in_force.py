"""What rules say is what happens, with real daemons: paths, names, requests that narrow, programs, and the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.chat_process import ChatStub, Step, chat_stub
from support.daemons import Daemon, two_daemons
from support.leases import delegate

pytestmark = pytest.mark.timeout(300)

READS = ("status", "ls", "peers", "agents", "room list", "policy show", "grants list", "approvals list", "sessions")


def calls(tool: str, **arguments: Any) -> list[Step]:
    return [{"calls": [[tool, arguments]]}, {"say": "done"}]


@contextmanager
def running(base: Path, script: list[Step], *rules: dict[str, Any], **agent: Any) -> Iterator[tuple[Daemon, ChatStub]]:
    with chat_stub(base / "c", script) as stub:
        daemon = Daemon(base / "a", environ={"PYTHONDONTWRITEBYTECODE": "1"})
        config = daemon.home / "config"
        config.mkdir(mode=0o700, parents=True)
        (config / "policy.json").write_text(json.dumps({"version": 1, "global": list(rules)}))
        (config / "agent.json").write_text(json.dumps({"agents": [{**stub.agent(), "id": "model", **agent}]}))
        try:
            yield daemon.up(), stub
        finally:
            daemon.down()


def refused(stub: ChatStub) -> bool:
    return str(stub.results()[-1]).startswith("Refused by policy")


@pytest.mark.parametrize(
    ("narrow", "tool", "arguments", "no"),
    [
        (("--deny", "file.write"), "file_write", {"path": "x", "content": "y"}, True),
        (("--deny", "Write"), "file_write", {"path": "x", "content": "y"}, True),
        (("--only", "file.*"), "shell_exec", {"command": "echo hi"}, True),
        (("--only", "file.*"), "file_write", {"path": "x", "content": "y"}, False),
        ((), "shell_exec", {"command": "echo hi"}, False),
    ],
)
def test_a_request_narrows_what_its_agent_may_call(
    tmp_path: Path, narrow: tuple[str, ...], tool: str, arguments: dict[str, Any], no: bool
) -> None:
    with running(tmp_path, calls(tool, **arguments)) as (daemon, stub):
        daemon.json("ask", "--agent", "model", *narrow, "do it", check=(0,), timeout=150)
        assert refused(stub) is no
        denials = daemon.json("audit", "denials")["entries"]
        assert len(denials) == int(no)
        if no:
            again = daemon.json("policy", "explain", "--entry", str(denials[0]["seq"]))
            assert (again["decision"], again["rule"]) == ("deny", denials[0]["rule"])


CLOSED = [
    {
        "id": "closed", "effect": "deny", "action": "tool.call", "resource": "file.*",
        "when": {"path": {"within": "secrets"}},
    },
    {
        "id": "kept", "effect": "deny", "action": "tool.call", "resource": "file.write",
        "when": {"path": {"like": "**/*.lock"}},
    },
]  # fmt: skip


@pytest.mark.parametrize("transport", ["sshfs", "archive"])
def test_programs_are_held_to_denies_over_paths_in_a_lease(tmp_path: Path, transport: str) -> None:
    project = tmp_path / "project"
    (project / "secrets").mkdir(parents=True)
    (project / "secrets" / "key").write_text("hunter2")
    (project / "a.lock").write_text("locked")
    script = (
        "cat secrets/key > stolen; cp -r . /tmp/all && cat /tmp/all/secrets/key >> stolen; "
        "echo x > a.lock; rm -f a.lock; echo fine > made; true"
    )
    with two_daemons(tmp_path / "d") as (alice, bob):
        (bob.home / "config" / "policy.json").write_text(json.dumps({"version": 1, "global": CLOSED}))
        bob.run("reload")
        ended = delegate(alice, project, script, "--transport", transport)
        assert ended["error"] is None
        assert (project / "made").read_text() == "fine\n"
        assert (project / "stolen").read_text() == ""
        assert (project / "a.lock").read_text() == "locked"
        assert (project / "secrets" / "key").read_text() == "hunter2"
        # Such an agent asks nobody before what it does, so it takes no lease that is narrowed.
        refused = alice.json(
            "delegate", str(project), "--to", "bob", "--deny", "file.write", "true", check=None, timeout=60
        )
        assert refused["error"]["code"] == "DECLINED"
        assert "does not ask before each tool" in refused["error"]["message"]


def test_half_an_hour_of_light_use_is_a_short_log(tmp_path: Path) -> None:
    """D29: reads and listings are no entries."""
    script = [*calls("file_list"), *calls("file_search", text="x"), *calls("file_write", path="x", content="y")]
    with running(tmp_path, script) as (daemon, _):
        for _ in range(4):
            for line in READS:
                daemon.run(*line.split(), "--json")
        for text in ("look", "search", "write"):
            daemon.json("ask", "--agent", "model", text, timeout=150)
        entries = [json.loads(line) for line in daemon.run("audit", "log", "--json").stdout.splitlines()]
        decisions = [one for one in entries if one["kind"] == "decision"]
        assert len(entries) < 100
        assert not [one for one in decisions if str(one["action"]).endswith(".read")]
        assert daemon.json("audit", "denials")["entries"] == []
        assert daemon.json("audit", "verify")["ok"]

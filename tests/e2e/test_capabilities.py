"""``sublet capability`` on a real daemon: told by levels, verified, and run in the sandbox where policy allows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon
from support.terminal import typed

SCRIPT = '#!/bin/sh\ncase $1 in help) echo USAGE-WORDS;; --version) echo v7;; *) echo ran "$@"; ls ..; esac\n'
POLICY = {
    "version": 1,
    "global": [
        {"id": "no.denied", "effect": "deny", "action": "capability.run", "resource": "capability.denied"},
        {"id": "ask.first", "effect": "approval", "action": "capability.run", "resource": "capability.asked"},
    ],
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("c") / "a")
    root = one.home / "config" / "capabilities"
    for name in ("tool", "denied", "asked"):
        (root / name).mkdir(parents=True)
        module = {"id": name, "name": name, "version": "7", "description": f"does {name}", "command": "./run.sh"}
        (root / name / "module.json").write_text(
            json.dumps({**module, "arguments": {"items": {"pattern": "^[a-z]+$"}}})
        )
        (root / name / "README.md").write_text("README-WORDS")
        (root / name / "run.sh").write_text(SCRIPT)
    (root / "broken").mkdir()
    (one.home / "config" / "policy.json").write_text(json.dumps(POLICY))
    (one.home / "config").chmod(0o700)
    try:
        yield one.up()
    finally:
        one.down()


def test_they_are_listed_with_what_is_wrong_and_a_version(daemon: Daemon) -> None:
    found = daemon.json("capability", "list")
    assert [one["id"] for one in found["capabilities"]] == ["asked", "denied", "tool"]
    assert found["problems"][0]["directory"].endswith("broken")
    assert len(found["capabilitySnapshotVersion"]) == 16
    root: Path = daemon.home / "config" / "capabilities"
    assert (
        daemon.json("capability", "list", "--dir", str(root))["capabilitySnapshotVersion"]
        == found["capabilitySnapshotVersion"]
    )


def test_levels_are_told_one_at_a_time(daemon: Daemon) -> None:
    texts = [daemon.json("capability", "inspect", "tool", "--level", level)["text"] for level in "123"]
    assert [("USAGE-WORDS" in text, "README-WORDS" in text) for text in texts] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_verify_tries_it(daemon: Daemon) -> None:
    found = daemon.json("capability", "verify", "tool")
    assert found["ok"]
    assert {check["name"]: check["detail"] for check in found["checks"]}["version"] == "v7"


def test_run_is_confined_and_told(daemon: Daemon) -> None:
    done = daemon.run("capability", "run", "tool", "--", "one", "two")
    assert done.stdout.splitlines()[0] == "ran one two"
    assert "sublet.db" not in done.stdout


def test_policy_and_the_schema_stand_before_it(daemon: Daemon) -> None:
    denied = daemon.run("capability", "run", "denied", "--", "one", "--json", check=None)
    assert denied.returncode != 0
    refused = daemon.run("capability", "run", "tool", "--json", "--", "-x", check=None)
    assert json.loads(refused.stdout)["error"]["code"] == "INVALID_ARGUMENT"
    traversal = daemon.run("capability", "inspect", "../peers", check=None)
    assert traversal.returncode != 0


def test_what_wants_approval_opens_a_question_and_runs_once_when_it_is_approved(daemon: Daemon) -> None:
    run = ["capability", "run", "asked", "--json", "--", "one"]
    assert json.loads(daemon.run(*run, check=None).stdout)["error"]["code"] == "APPROVER_MISSING"
    secret = "correct horse battery"
    typed(daemon, "approver", "init", answers=[("New passphrase: ", secret), ("Once more: ", secret)])
    wrong = daemon.run("capability", "run", "asked", "--json", "--", "-x", check=None)
    assert json.loads(wrong.stdout)["error"]["code"] == "INVALID_ARGUMENT"
    assert daemon.json("approvals")["approvals"] == []
    error = json.loads(daemon.run(*run, check=None).stdout)["error"]
    [asked] = daemon.json("approvals")["approvals"]
    assert error["code"] == "APPROVAL_REQUIRED"
    assert f"sublet approvals approve {asked['id']}" in error["hint"]
    assert (asked["agent"], asked["tool"], asked["waits"]) == ("human:", "capability.asked", True)
    assert json.loads(daemon.json("approvals", "show", asked["id"])["arguments"]) == {"args": ["one"]}
    daemon.run(*run, check=None)
    assert len(daemon.json("approvals")["approvals"]) == 1, "the same call is one question"
    status, shown = typed(daemon, "approvals", "approve", asked["id"], answers=[("Passphrase: ", secret)])
    assert status == 0, shown
    other = json.loads(daemon.run("capability", "run", "asked", "--json", "--", "two", check=None).stdout)
    assert other["error"]["code"] == "APPROVAL_REQUIRED"
    assert json.loads(daemon.run(*run).stdout)["stdout"].startswith("ran one")
    assert json.loads(daemon.run(*run, check=None).stdout)["error"]["code"] == "APPROVAL_REQUIRED"
    [grant] = daemon.json("grants", "list", "--all")["grants"]
    assert (grant["state"], grant["outcomes"]) == ("used up", ["done"])

"""A peer gets another name, and whoever made a link is told who used it: between two daemons, by the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import SUBLET, Daemon, two_daemons
from support.leases import begin, delegate, finish, view


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path_factory.mktemp("upkeep")) as pair:
        yield pair


def test_a_peer_is_called_something_else_while_it_works_and_all_goes_on(
    daemons: tuple[Daemon, Daemon], tmp_path: Path
) -> None:
    lender, worker = daemons
    project = tmp_path / "project"
    project.mkdir()
    running = begin(lender, project, "while [ ! -e go ]; do sleep 0.1; done; echo done > done")
    renamed = lender.json("peers", "rename", "bob", "robert")
    assert (renamed["name"], renamed["was"]) == ("robert", "bob")
    [peer] = lender.json("peers", "list")["peers"]
    assert (peer["name"], peer["usable"], peer["fingerprint"]) == ("robert", True, worker.info["fingerprint"])
    # what is under way goes on, and shows the name that it began with
    (project / "go").touch()
    assert finish(lender, running).error is None
    assert (project / "done").read_text() == "done\n"
    assert view(lender, running).peer == "bob"
    assert delegate(lender, project, "true", peer="robert")["peer"] == "robert"
    refused = lender.run("peers", "rename", "bob", "bert", "--json", check=None)
    assert json.loads(refused.stdout)["error"]["code"] == "PEER_UNKNOWN"
    lender.run("peers", "rename", "robert", "bob")


def test_a_peer_that_a_rule_names_keeps_its_name(daemons: tuple[Daemon, Daemon]) -> None:
    lender, _ = daemons
    policy = lender.home / "config" / "policy.json"
    before = policy.read_text() if policy.exists() else None
    rule = {"id": "no-bob", "effect": "deny", "action": "delegation.create", "resource": "bob", "reason": "no"}
    policy.write_text(json.dumps({"version": 1, "global": [rule]}))
    try:
        lender.run("reload")
        error = json.loads(lender.run("peers", "rename", "bob", "robert", "--json", check=None).stdout)["error"]
        assert error["code"] == "CONFLICT"
        assert "the rule no-bob names it as bob" in error["message"]
    finally:
        policy.write_text(before or '{"version": 1}')
        lender.run("reload")
    assert [peer["name"] for peer in lender.json("peers", "list")["peers"]] == ["bob"]


def test_whoever_makes_a_link_may_wait_until_it_is_used(daemons: tuple[Daemon, Daemon]) -> None:
    lender, worker = daemons
    argv = [str(SUBLET), "pair", "--wait"]
    with subprocess.Popen(argv, env=worker.environment(), stdout=subprocess.PIPE, text=True) as waiting:
        assert waiting.stdout is not None
        link = waiting.stdout.readline().strip()
        lender.run("peers", "add", link, "--name", "bob")
        told = " ".join(waiting.stdout.read().split())
    assert lender.info["fingerprint"] in told.replace(" ", "")
    used, *_ = worker.json("peers", "links")["links"]
    assert (used["state"], used["fingerprint"]) == ("used", lender.info["fingerprint"])
    assert used["peer"] in {peer["name"] for peer in worker.json("peers", "list")["peers"]}
    assert used["made_by"] == "human"

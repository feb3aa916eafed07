"""The gateways of ``examples/gateways`` with a real daemon: people post, a rule decides, and answers go out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.daemons import Daemon, wait_for

pytestmark = pytest.mark.timeout(180)

EXAMPLES = Path(__file__).parents[2] / "examples" / "gateways"
HEARD = {"type": "command", "argv": ["sh", "-c", "echo heard; cat"]}
AGENTS = {"agents": [{"id": one, "role": "executor", "provider": HEARD} for one in ("helper", "secretary")]}
DESK = {"kind": "a2a", "name": "gateway:desk"}


def rule(name: str, effect: str, action: str, resource: str) -> dict[str, Any]:
    return {"id": name, "effect": effect, "action": action, "resource": resource, "subject": DESK}


TO_TICKETS = rule("desk-to-tickets", "allow", "module.dispatch", "tickets")
NOT_THE_OWNERS = rule("not-the-owners", "deny", "agent.message", "secretary")


class People:
    """Who comes to the desk."""

    def __init__(self, url: str) -> None:
        self._url = url

    def post(self, sender: str, text: str) -> str:
        return httpx.post(f"{self._url}/{sender}", content=text, timeout=90, trust_env=False).text.rstrip()

    def board(self) -> str:
        return httpx.get(self._url, timeout=30, trust_env=False).text.rstrip()


@contextmanager
def program(daemon: Daemon, name: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a gateway of the examples as its page says."""
    shown = daemon.run("gateway", "show", name, "--json").stdout
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(shown)
        process.stdin.close()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@contextmanager
def opened(tmp_path: Path, *rules: dict[str, Any]) -> Iterator[tuple[Daemon, People]]:
    daemon = Daemon(tmp_path / "d")
    for name in ("desk", "tickets"):
        directory = daemon.home / "config" / "gateways" / name
        directory.mkdir(parents=True)
        (directory / "module.json").write_text((EXAMPLES / name / "module.json").read_text())
    (daemon.home / "config" / "policy.json").write_text(json.dumps({"version": 1, "global": list(rules)}))
    (daemon.home / "config").chmod(0o700)
    try:
        daemon.up(agent=AGENTS)
        wait_for(lambda: daemon.json("gateway", "show", "desk")["url"], what="where gateways connect")
        with program(daemon, "tickets", str(tmp_path / "tickets.txt")), program(daemon, "desk", "0") as desk:
            assert desk.stdout is not None
            yield daemon, People(desk.stdout.readline().split()[-1])
    finally:
        daemon.down()


def decisions(daemon: Daemon, effect: str) -> list[tuple[str, str, str]]:
    found = daemon.json("policy", "log")["decisions"]
    return [
        (one["action"], one["resource"], one["rule_id"])
        for one in found
        if one["effect"] == effect and one["subject"]["name"] == DESK["name"]
    ]


def test_D27_a_rule_decides_which_modules_a_gateway_reaches_and_answers_go_out(tmp_path: Path) -> None:
    with opened(tmp_path, TO_TICKETS, NOT_THE_OWNERS) as (daemon, people):
        assert people.post("ann", "/hub tickets The printer is out of paper.") == "Ticket 1."
        assert people.post("bob", "/hub tickets\nIt is dark\nin here.") == "Ticket 2."
        assert (tmp_path / "tickets.txt").read_text() == "The printer is out of paper.\nIt is dark in here.\n"

        # What no rule names stays shut, and neither a name in the text nor one that nobody has opens it.
        refused = people.post("ann", "/hub desk Hello, all of you.")
        assert refused.startswith("Not done: POLICY_DENIED"), refused
        assert people.post("ann", "/hub nothing x").startswith("Not done: ")
        assert people.board() == "There is nothing on the board."
        assert "heard" in people.post("ann", "@helper What does /hub tickets do?")
        refused = people.post("ann", "@secretary What does the owner earn?")
        assert refused.startswith("Not done: POLICY_DENIED"), refused
        assert (tmp_path / "tickets.txt").read_text().count("\n") == 2

        # The owner reaches the people.
        assert daemon.json("ask", "/hub desk The printer works again.")["result"] == "It is shown."
        daemon.run("gateway", "send", "desk", "We close at five.")
        assert people.board() == "The printer works again.\nWe close at five."


def test_D27_without_a_rule_a_gateway_reaches_no_module(tmp_path: Path) -> None:
    with opened(tmp_path) as (daemon, people):
        assert people.post("ann", "/hub tickets The printer is out of paper.").startswith("Not done: POLICY_DENIED")
        assert not (tmp_path / "tickets.txt").exists()
        assert daemon.json("ask", "/hub tickets For me.")["result"] == "Ticket 1."
        daemon_policy = daemon.home / "config" / "policy.json"
        daemon_policy.write_text(json.dumps({"version": 1, "global": [TO_TICKETS]}))
        daemon.run("reload")
        assert people.post("ann", "/hub tickets The printer is out of paper.") == "Ticket 2."
        hidden = {**TO_TICKETS, "effect": "deny", "hide": True}
        daemon_policy.write_text(json.dumps({"version": 1, "global": [hidden]}))
        daemon.run("reload")
        absent = people.post("ann", "/hub nothing x")
        assert people.post("ann", "/hub tickets x") == absent.replace("nothing", "tickets")

"""Two real paired daemons whose agents ask each other as if they were here, by the commands that scripts rely on."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.daemons import Daemon, pair, wait_for

SHELL: dict[str, Any] = {
    "id": "worker-1",
    "role": "executor",
    "provider": {"type": "command", "argv": ["sh", "-s"]},
    "skills": [{"id": "test", "name": "Test", "description": "Runs tests", "tags": ["shell"]}],
}
QUICK = """[agent_federation]
heartbeat_interval_secs = 1
agent_timeout_secs = 4
[agent_federation.room]
namespace = "{}"
"""


def configured(home: Path, name: str, node: str, more: str = "", space: str = "default") -> Daemon:
    daemon = Daemon(home / name)
    config = daemon.home / "config"
    config.mkdir(mode=0o700, parents=True)
    text = QUICK.format(space).replace("[agent_federation]\n", f'[agent_federation]\nnode_id = "{node}"\n', 1)
    (config / "federation.toml").write_text(text + more)
    return daemon


@pytest.fixture
def pair_of(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    alice, bob = configured(tmp_path, "a", "living.local"), configured(tmp_path, "b", "kitchen.local")
    try:
        alice.up(agent={**SHELL, "id": "coordinator"})
        bob.up(agent=SHELL)
        pair(alice, bob)
        yield alice, bob
    finally:
        alice.down()
        bob.down()


def addresses(daemon: Daemon) -> list[str]:
    return [one["address"] for one in daemon.json("agents", "--everywhere")]


def until_known(daemon: Daemon, address: str) -> dict[str, Any]:
    def known() -> dict[str, Any] | None:
        found = daemon.json("agents", "--everywhere")
        return next((one for one in found if one["address"] == address), None)

    found: dict[str, Any] = wait_for(known, 40, address)
    return found


def failed(daemon: Daemon, *arguments: str) -> Any:
    return daemon.json("ask", *arguments, check=(1,))["result"]


def test_an_agent_of_another_node_is_found_and_asked_as_if_it_were_here(pair_of: tuple[Daemon, Daemon]) -> None:
    alice, bob = pair_of
    known = until_known(alice, "worker-1@kitchen.local")
    assert (known["node_id"], known["peer"], known["status"]) == ("kitchen.local", "bob", "idle")
    assert known["capabilities"] == ["test", "shell"]
    assert known["last_seen"].endswith("Z") or "+" in known["last_seen"]
    until_known(bob, "coordinator@living.local")
    states = {one["node_id"]: one["state"] for one in alice.json("nodes")}
    assert states == {"living.local": "here", "kitchen.local": "reached"}

    answer = alice.json("ask", "@worker-1@kitchen.local echo from $((40+2))")
    assert answer["result"].strip() == "from 42"
    assert (answer["target"], answer["agentId"]) == ("worker-1@kitchen.local", "worker-1")
    assert answer["metadata"]["duration_ms"] >= 0
    # My own name for a peer will do, and wins.
    assert alice.json("ask", "@worker-1@bob echo again")["result"].strip() == "again"

    missing = failed(alice, "@nobody@kitchen.local hello")
    assert (missing["success"], missing["exit_code"]) == (False, -1)
    assert missing["metadata"]["error_code"] == "AGENT_NOT_FOUND"
    assert failed(alice, "@worker-1@nowhere.local hello")["metadata"]["error_code"] == "NODE_UNREACHABLE"
    slow = failed(alice, "@worker-1@kitchen.local sleep 30", "--timeout", "1")
    assert slow["metadata"]["error_code"] == "TIMEOUT"
    told = bob.run("events", "--json").stdout
    assert "node_task" in told


def test_a_node_that_goes_is_gone_and_a_kill_interrupts_what_it_did_for_good(
    pair_of: tuple[Daemon, Daemon], tmp_path: Path
) -> None:
    alice, bob = pair_of
    until_known(alice, "worker-1@kitchen.local")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(failed, alice, f"@worker-1@bob echo run >> {tmp_path}/none; sleep 60", "--timeout", "60")
        wait_for(lambda: "started" in bob.run("events", "--json").stdout, 30, "its start")
        bob.kill(signal.SIGKILL)
        bob.up(agent=SHELL)
        result = asking.result(90)
    assert (result["metadata"]["error_code"], result["metadata"]["reason"]) == ("TIMEOUT", "interrupted")
    until_known(alice, "worker-1@kitchen.local")
    assert alice.json("ask", "@worker-1@bob echo back")["result"].strip() == "back"
    bob.run("down")
    bob.wait_gone()
    wait_for(lambda: "worker-1@kitchen.local" not in addresses(alice), 30, "the end of its agent")
    assert failed(alice, "@worker-1@bob echo hi")["metadata"]["error_code"] == "NODE_UNREACHABLE"


def test_another_namespace_is_another_world(tmp_path: Path) -> None:
    alice = configured(tmp_path, "a", "living.local", space="team-alpha")
    bob = configured(tmp_path, "b", "kitchen.local")
    try:
        alice.up(agent={**SHELL, "id": "coordinator"})
        bob.up(agent=SHELL)
        pair(alice, bob)

        def refused() -> Any:
            return [one for one in alice.json("nodes") if one["peer"] == "bob" and "namespace" in one["why_not"]]

        wait_for(refused, 40, "the reason")
        assert addresses(alice) == ["coordinator@living.local"]
        assert failed(alice, "@worker-1@bob hi")["metadata"]["error_code"] == "NODE_UNREACHABLE"
    finally:
        alice.down()
        bob.down()

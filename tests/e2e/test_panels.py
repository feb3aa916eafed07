"""A panel on three real daemons: one task, two nodes, a check in the sandbox, one result taken, by one handle."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemons import Daemon, pair, wait_for

QUICK = """[agent_federation]
node_id = "{}"
heartbeat_interval_secs = 1
agent_timeout_secs = 10
"""
TASK = 'cat start.txt > seen.txt; echo "$1" > answer.txt; echo "$1 is done"'
CHECK = "grep -q good answer.txt && test $(wc -l < /proc/net/route) -le 1"
"""It passes only without a network."""


def agent(word: str) -> dict[str, Any]:
    return {
        "id": "mender",
        "role": "executor",
        "provider": {"type": "command", "argv": ["sh", "-s", word]},
        "skills": [{"id": "repair", "name": "Repair", "description": "Repairs", "tags": ["mend"]}],
    }


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon, Daemon]]:
    home = tmp_path_factory.mktemp("panels")
    daemons = []
    for name, node in (("a", "living.local"), ("b", "kitchen.local"), ("c", "cellar.local")):
        daemon = Daemon(home / name)
        (daemon.home / "config").mkdir(mode=0o700, parents=True)
        (daemon.home / "config" / "federation.toml").write_text(QUICK.format(node))
        daemons.append(daemon)
    alice, bob, carol = daemons
    try:
        alice.up()
        bob.up(agent=agent("good"))
        carol.up(agent=agent("bad"))
        pair(alice, bob)
        pair(alice, carol, "carol")
        wait_for(lambda: len(able(alice)) == 2, 40, "both agents")
        yield alice, bob, carol
    finally:
        for daemon in daemons:
            daemon.down()


def able(daemon: Daemon) -> list[str]:
    return [one["address"] for one in daemon.json("agents", "--everywhere") if "repair" in one["capabilities"]]


def directory(path: Path) -> Path:
    path.mkdir()
    (path / "start.txt").write_text("as it began\n")
    return path


def test_a_panel_is_checked_compared_and_one_result_is_taken(
    three: tuple[Daemon, Daemon, Daemon], tmp_path: Path
) -> None:
    alice = three[0]
    lent = directory(tmp_path / "lent")
    found = alice.json(
        *("delegate", str(lent), "--to", "capability:repair", "--panel", "2", "--staged", "--check", CHECK, TASK)
    )
    assert found["state"] == "over"
    by_address = {one["address"]: one for one in found["members"]}
    good, bad = by_address["mender@kitchen.local"], by_address["mender@cellar.local"]
    assert (good["state"], good["exit_code"]) == ("passed", 0), found
    assert (bad["state"], bad["exit_code"]) == ("failed", 1)
    assert "capability" not in good["why"]
    assert "has repair" in good["why"]
    assert found["agent_seconds"] > 0
    assert sorted(one.name for one in lent.iterdir()) == ["start.txt"], "nothing changes before it is applied"

    review = alice.json("review", found["panel_id"])
    changes = {one["path"]: {each["member"] for each in one["changes"]} for one in review["files"]}
    assert changes == {"answer.txt": {1, 2}, "seen.txt": {1, 2}}
    shown = alice.run("review", found["panel_id"][:12]).stdout
    assert "exit 0" in shown
    assert "exit 1" in shown

    applied = alice.json("apply", found["panel_id"], "--member", str(good["member"]))
    assert applied["discarded"] == [bad["delegation_id"]]
    assert (lent / "answer.txt").read_text() == "good\n"
    assert (lent / "seen.txt").read_text() == "as it began\n"
    assert alice.json("review", bad["delegation_id"])["change_set"]["status"] == "discarded"
    said = alice.json("nodes", "--say", "tea is ready")
    assert {one["peer"]: one["why_not"] for one in said["heard"]} == {"bob": "", "carol": ""}
    [heard] = three[1].json("nodes", "--messages")
    assert (heard["from_agent"], heard["text"]) == ("human@living.local", "tea is ready")
    kinds = alice.run("events", "--json").stdout
    assert "panel_state" in kinds
    staged = alice.home / "state" / "staged"
    assert [*staged.iterdir()] == [], "no copy is left"


def test_the_first_that_passes_stops_the_others_and_a_kill_leaves_a_panel_that_goes_on(
    three: tuple[Daemon, Daemon, Daemon], tmp_path: Path
) -> None:
    alice = three[0]
    lent = directory(tmp_path / "lent")
    flag = tmp_path / "go"
    slow = f'if [ "$1" = bad ]; then sleep 60; fi; {TASK}'
    begun = alice.json(
        *("delegate", str(lent), "--to", "mender@bob,mender@carol", "--panel", "2", "--background"),
        *("--check", f"sleep 2; {CHECK}", "--first", slow),
    )
    panel = begun["panel_id"]
    assert begun["state"] == "running"

    def checking() -> bool:
        return bool(alice.json("review", panel)["panel"]["members"][0]["state"] == "checking")

    wait_for(checking, 30, "the check")
    refused = alice.run("apply", panel, "--member", "1", check=(1,))
    assert "not over" in refused.stderr
    alice.kill(signal.SIGKILL)
    alice.up()
    alice.run("attach", panel)
    found = alice.json("review", panel)["panel"]
    assert found["state"] == "over"
    first, other = found["members"]
    assert (first["state"], first["exit_code"]) == ("passed", 0)
    assert other["state"] == "none"
    assert "passed the check first" in other["error"]["message"]
    assert found["agent_seconds"] < 60
    assert not flag.exists()
    dropped = alice.json("discard", panel)
    assert first["delegation_id"] in dropped["discarded"]

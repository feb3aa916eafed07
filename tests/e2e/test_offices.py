"""Offices of a real daemon, with the published clients of A2C-SMCP and with raw ones."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemons import Daemon
from support.office_client import Client, opened

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".cache" / "a2c-clients" / "bin" / "python"
MEMBERS = ROOT / "tests" / "clients" / "a2c" / "members.py"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemon = Daemon(tmp_path / "home")
    (daemon.home / "config").mkdir(parents=True)
    # A port of its own, so that clients find it again after a restart.
    (daemon.home / "config" / "config.json").write_text(json.dumps({"offices": {"listen": f"127.0.0.1:{port}"}}))
    daemon.up()
    yield daemon
    daemon.down()


def token(daemon: Daemon, office: str, role: str, name: str) -> Any:
    return daemon.json("office", "token", office, "--role", role, "--name", name)


async def joined(made: Any) -> Client:
    client = await opened(made["url"])
    assert await client.authenticate(made["token"]) is not None
    assert await client.join(made["name"], made["role"], made["office_id"]) == [True, None]
    return client


@pytest.mark.skipif(not PYTHON.exists(), reason="the published clients are not installed: make hosts")
def test_the_published_clients_do_all_they_can_in_two_offices_side_by_side(daemon: Daemon) -> None:
    offices, url = [], ""
    for name in ("desk", "lab"):
        made = daemon.json("office", "create", name)
        agent, computer = (token(daemon, name, *who) for who in (("agent", "alice"), ("computer", "bob")))
        assert agent["office_id"] == made["office_id"]
        offices.append({"office_id": made["office_id"], "agent": agent["token"], "computer": computer["token"]})
        url = agent["url"]
    done = subprocess.run(
        [str(PYTHON), str(MEMBERS)],
        input=json.dumps({"url": url, "offices": offices}),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for said in json.loads(done.stdout.splitlines()[-1]):
        assert said == {
            "agent_joined": [True, None],
            "computer_joined": True,
            "heard_tools": True,
            "computers": ["bob"],
            "tools": ["notes__add", "notes__fail", "notes__picture"],
            "sum": [False, "5"],
            "fails": True,
            "unknown_tool": True,
            "absent": [True, True],
            "picture": said["picture"],
            "config": ["notes"],
            "desktop": [],
            "skills": [],
            "upload": [600_000, True],
            "updates": True,
            "left": True,
        }
        assert said["picture"] >= 700_000 * 4 // 3
    entries = [json.loads(line) for line in daemon.run("audit", "log", "--json").stdout.splitlines()]
    asked = {entry.get("resource") for entry in entries if entry.get("subject") == "office lab/alice"}
    assert {"notes__add", "notes__picture", "config", "desktop", "put_blob"} <= asked


async def test_who_is_sent_away_is_out_at_once_and_stays_out(daemon: Daemon) -> None:
    daemon.json("office", "create", "desk")
    made = token(daemon, "desk", "computer", "bob")
    bob = await joined(made)
    assert daemon.json("office", "list")["offices"][0]["members"] == [
        {"name": "bob", "role": "computer", "connected": True, "calls": 0}
    ]
    assert daemon.json("office", "kick", "desk", "bob")["was_connected"] is True
    await bob.closed()
    stranger = await opened(made["url"])
    assert await stranger.authenticate(made["token"]) is None
    await stranger.socket.close()
    alice = await joined(token(daemon, "desk", "agent", "alice"))
    daemon.json("office", "close", "desk")
    await alice.closed()
    assert daemon.json("office", "list")["offices"] == []
    assert made["token"] not in daemon.log()


async def test_tokens_outlive_a_kill_and_members_join_again(daemon: Daemon) -> None:
    daemon.json("office", "create", "desk")
    made = [token(daemon, "desk", *who) for who in (("computer", "bob"), ("agent", "alice"))]
    clients = [await joined(one) for one in made]
    daemon.kill()
    for client in clients:
        await client.closed()
        await client.socket.close()
    daemon.up()
    again = [await joined(one) for one in made]
    assert [one["connected"] for one in daemon.json("office", "list")["offices"][0]["members"]] == [True, True]
    for client in again:
        await client.socket.close()

"""A node that shares no line with ours finds and asks agents of a real daemon over HTTP; without its key, nothing."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Any

import pytest

from e2e.test_federation import SHELL, addresses
from support.daemons import Daemon, wait_for
from support.node_client import HEALTH, PAGE, NodeClient

FILE = """[agent_federation]
node_id = "kitchen.local"
heartbeat_interval_secs = 1
agent_timeout_secs = 6
[agent_federation.http]
enabled = true
listen = "127.0.0.1:0"
"""
PEER = """
[[agent_federation.peers]]
node_id = "living.local"
url = "{url}"
fingerprint = "{fingerprint}"
"""


def node(daemon: Daemon, name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in daemon.json("nodes") if one["node_id"] == name)
    return found


def test_an_http_client_of_its_own_finds_and_asks_an_agent_and_without_its_key_gets_nothing(tmp_path: Path) -> None:
    daemon, client, stranger = Daemon(tmp_path / "a"), NodeClient("living.local"), NodeClient("living.local")
    config = daemon.home / "config"
    config.mkdir(mode=0o700, parents=True)
    with client.serving():
        (config / "federation.toml").write_text(FILE + PEER.format(url=client.url, fingerprint=client.fingerprint))
        try:
            daemon.up(agent=SHELL)
            here = wait_for(lambda: one if (one := node(daemon, "kitchen.local"))["url"] else None, 20, "its address")
            assert here["url"].startswith("https://127.0.0.1:")
            client.meet(here["url"], here["fingerprint"])
            stranger.meet(here["url"], here["fingerprint"])
            page = wait_for(lambda: _page(client), 40, "that its key is known")
            client.learn(page)
            assert page["server_name"] == "kitchen.local"
            status, health = client.call("GET", HEALTH)
            assert (status, health["status"], health["server_name"]) == (200, "ok", "kitchen.local")
            # Discovery: each learns of the other's agents.
            assert client.register()[1]["accepted"]
            agent = client.wait_for(lambda one: one["event_type"] == "io.cis.agent.registered")
            assert (agent["agent_id"], agent["node_id"]) == ("worker-1", "kitchen.local")
            assert agent["capabilities"] == ["test", "shell"]
            wait_for(lambda: "me@living.local" in addresses(daemon), 20, "its agent")
            assert node(daemon, "living.local")["peer"] == "living.local"
            # A task, started once and answered.
            done = client.ask("worker-1", "kitchen.local", "echo from $((40+2))")
            assert (done["success"], done["output"].strip(), done["exit_code"]) == (True, "from 42", 0)
            missing = client.ask("nobody", "kitchen.local", "echo")
            assert (missing["success"], missing["metadata"]["error_code"]) == (False, "AGENT_NOT_FOUND")
            assert client.refused == []
            # The same node without its key says not a word.
            for method, path in (("GET", HEALTH), ("GET", PAGE)):
                with pytest.raises((OSError, http.client.HTTPException)):
                    stranger.call(method, path)
            with pytest.raises((OSError, http.client.HTTPException)):
                stranger.register()
        finally:
            daemon.down()


def _page(client: NodeClient) -> dict[str, Any] | None:
    try:
        status, page = client.call("GET", PAGE)
    except (OSError, http.client.HTTPException):
        return None  # its key was not seen yet
    found: dict[str, Any] | None = page if status == 200 else None
    return found

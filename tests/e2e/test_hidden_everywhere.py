"""D24: what a rule hides from others is in nothing that they can fetch: cards, lists, pages, tools, resources, errors.

Everything that somebody is told is gathered as text, and the hidden name is looked for in all of it; what its owner is
told has the name, else the test would pass with an agent that is not there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from mcp import Client
from mcp.types import TextResourceContents

from sublet.daemon.config.paths import resolve_home
from sublet.mcp_server.catalogue import TOOLS
from support.daemons import Daemon, pair
from support.mcp_face import server_of
from support.tool_answers import text_of

pytestmark = pytest.mark.timeout(300)

HIDDEN, PEER, ABSENT = "zebra", "quagga", "yeti"
"""An agent of Bob's, what Alice calls another daemon, and what nobody is called."""
SHELL: dict[str, Any] = {"role": "executor", "provider": {"type": "command", "argv": ["sh", "-s"]}}
AGENTS = {"agents": [{"id": HIDDEN, **SHELL, "description": f"the {HIDDEN}"}, {"id": "plain", **SHELL}]}
FROM_PEERS = {
    "id": "secret-agent",
    "effect": "deny",
    "hide": True,
    "action": ["assignment.accept", "agent.message"],
    "resource": HIDDEN,
}
FROM_HOSTS = {
    "id": "secret-peer",
    "effect": "deny",
    "hide": True,
    "action": ["delegation.create", "delegation.read"],
    "subject": {"kind": "mcp"},
    "resource": PEER,
}
COMMANDS = ("status", "doctor", "peers", "peers show bob", "agents", "work", "ls", "policy show", "room list", "config")
"""What a person can be told at their own machine of a daemon that is paired."""


@dataclass(frozen=True)
class Three:
    """Alice, Bob, one of whose agents is hidden, and a daemon that Alice hides from hosts."""

    alice: Daemon
    bob: Daemon
    other: Daemon


def _ruled(home: Path, rule: dict[str, Any]) -> Daemon:
    config = home / "config"
    config.mkdir(mode=0o700, parents=True)
    (config / "policy.json").write_text(json.dumps({"version": 1, "global": [rule]}))
    return Daemon(home)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    base = tmp_path_factory.mktemp("hidden")
    found = Three(_ruled(base / "a", FROM_HOSTS), _ruled(base / "b", FROM_PEERS), Daemon(base / "c"))
    try:
        found.alice.up()
        found.bob.up(agent=AGENTS)
        found.other.up()
        pair(found.alice, found.bob)
        pair(found.alice, found.other, PEER)
        yield found
    finally:
        for one in (found.alice, found.bob, found.other):
            one.down()


def test_its_owner_sees_it(three: Three) -> None:
    for command in ("agents", "status", "policy show"):
        assert HIDDEN in three.bob.run(*command.split(), "--json").stdout


def test_neither_card_shows_it_and_no_request_of_a2a_tells_it_from_nobody(three: Three) -> None:
    token = three.bob.json("token", "create", "ci")["token"]
    url = str(three.bob.info["a2a_url"])
    with httpx.Client(base_url=url, headers={"A2A-Version": "1.0"}, trust_env=False, timeout=30) as client:
        card = client.get("/.well-known/agent-card.json")
        assert card.status_code == 200
        assert "plain" in card.text
        told = [card.text]
        client.headers["Authorization"] = f"Bearer {token}"
        for method, params in (
            ("GetExtendedAgentCard", {}),
            ("ListTasks", {}),
            ("GetTask", {"id": HIDDEN.upper()}),
            ("NoSuchMethod", {}),
        ):
            told.append(client.post("/", json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).text)
        paths = ("/", "/.well-known/agent.json", "/agents", "/card", "/v1/agents", "/tasks")
        told += [client.get(path).text for path in paths]
        answers = []
        for name in (HIDDEN, ABSENT):
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": f"@{name} hello"}]}
            call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
            answers.append(client.post("/", json=call).json())
        assert HIDDEN not in "\n".join(told)
        hidden, absent = (_plain(one, name) for one, name in zip(answers, (HIDDEN, ABSENT), strict=True))
        assert hidden == absent


def _plain(answer: Any, name: str) -> str:
    """Return what an answer says, without the ids and times of its task, and without the name that was asked for."""
    task = answer["result"]["task"]
    status = {key: value for key, value in task["status"].items() if key not in ("timestamp", "message")}
    words = [part.get("text") for part in task["status"].get("message", {}).get("parts", [])]
    return json.dumps([status, words]).replace(name, "NAME")


def test_a_paired_daemon_knows_nothing_of_it_by_any_command(three: Three, tmp_path: Path) -> None:
    three.alice.run("doctor", "--json", check=None)
    for command in COMMANDS:
        told = three.alice.run(*command.split(), "--json", check=None).stdout
        assert HIDDEN not in told, command
    shown = three.alice.json("peers", "show", "bob")
    assert [one["id"] for one in shown["agents"]] == ["plain"]
    refused = []
    for name in (HIDDEN, ABSENT):
        done = three.alice.json("delegate", str(tmp_path), "true", "--to", f"bob/{name}", check=None)
        refused.append(json.dumps(done["error"]).replace(name, "NAME"))
    assert refused[0] == refused[1]
    assert "secret-agent" not in refused[0]


def test_a_host_finds_it_by_no_tool_and_no_resource(three: Three, tmp_path: Path) -> None:
    listing = {
        "directory": {},
        "read_messages": {"query": "quag"},
        "watch": {},
        "people": {"action": "find", "query": "the"},
    }
    asking: dict[str, dict[str, Any]] = {
        "delegate": {"workspace_dir": str(tmp_path), "prompt": "true", "peer": "NAME"},
    }

    async def host() -> tuple[str, list[str]]:
        async with Client(server_of(resolve_home({"SUBLET_HOME": str(three.alice.home)}))) as talk:
            told = [str(await talk.list_tools()), str((await talk.list_resources()).resources)]
            for name, given in listing.items():
                told.append(text_of(await talk.call_tool(name, given)))
            for one in (await talk.list_resources()).resources:
                contents = (await talk.read_resource(str(one.uri))).contents
                told += [content.text for content in contents if isinstance(content, TextResourceContents)]
            answers = []
            for name in (PEER, ABSENT):
                given = {key: value.replace("NAME", name) for key, value in asking["delegate"].items()}
                answers.append(text_of(await talk.call_tool("delegate", given)).replace(name, "NAME"))
        return "\n".join(told), answers

    assert set(listing) | set(asking) <= {tool.name for tool in TOOLS}
    told, (hidden, absent) = anyio.run(host)
    assert "bob" in told
    assert PEER not in told
    assert "secret-peer" not in told + hidden
    assert hidden == absent

"""What rules say is what happens, with real daemons: paths, names, requests that narrow, programs, and the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import ListRootsResult, Root
from pydantic import FileUrl

from sublet.daemon.config.paths import resolve_home
from support.browser import chromium
from support.chat_process import ChatStub, Step, chat_stub
from support.daemons import Daemon, two_daemons
from support.leases import delegate
from support.mcp_face import server_of
from support.tool_answers import facts

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


UNSEEN: list[dict[str, Any]] = [
    {
        "id": "no-review", "effect": "deny", "hide": True, "action": "tool.call",
        "subject": {"kind": "mcp"}, "resource": "sublet.delegate_review",
    },
    {
        "id": "no-carol", "effect": "deny", "hide": True, "action": "delegation.create",
        "subject": {"kind": "mcp"}, "resource": "carol",
    },
]  # fmt: skip


def test_half_an_hour_with_a_host_a_page_a_room_and_a_lease_is_a_short_log(tmp_path: Path) -> None:
    """D29: of a host that looks again and again, of a page that stays open, and of a room only what changes is kept.

    Nothing of it is a denial either, although rules hide a tool and a peer from the host, which no list shows it.
    """
    project = tmp_path / "project"
    project.mkdir()
    document = {"version": 1, "global": UNSEEN}
    with two_daemons(tmp_path / "d", policy=document) as (alice, _), chromium() as browser:
        browser.open(alice.json("web")["url"])
        browser.wait_text("Nothing is lent yet")
        room = alice.json("room", "create", "Work")["room_id"]
        alice.run("room", "invite", room, "bob")

        async def host() -> None:
            server = server_of(resolve_home({"SUBLET_HOME": str(alice.home)}))
            async with Client(server, list_roots_callback=partial(_roots, project)) as talk:
                me = facts(await talk.call_tool("directory", {}))
                assert "delegate_review" not in [tool.name for tool in (await talk.list_tools()).tools]
                given = {"workspace_dir": str(project), "peer": "bob", "prompt": "echo hi > new; echo done"}
                found = facts(await talk.call_tool("delegate", given))["delegation_id"]
                for section in ("summary", "log", "patch") * 5:
                    asked = {"delegation_id": found, "section": section, "wait_seconds": 1}
                    await talk.call_tool("delegate_output", asked)
                for _ in range(10):
                    await talk.list_tools()
                    await talk.list_resources()
                    await talk.call_tool("directory", {})
                    await talk.call_tool("watch", {})
                    await talk.call_tool("people", {"action": "find", "query": "review"})
                assert me

        anyio.run(host)
        for place in ("Rooms", "Agents", "Events", "Approvals", "Leases") * 2:
            browser.click("nav a", place)
            browser.wait_text(place, "h1")
        for number in range(5):
            alice.run("send", room, f"message {number}")
            for line in (*READS, f"read {room}", f"room show {room}", "channels", "search review", "work", "doctor"):
                alice.run(*line.split(), "--json", check=None)
        entries = [json.loads(line) for line in alice.run("audit", "log", "--json").stdout.splitlines()]
        decisions = [one for one in entries if one["kind"] == "decision"]
        assert len(entries) < 100, sorted(f"{one.get('action')} {one.get('resource')}" for one in entries)
        assert not [one for one in decisions if str(one["action"]).endswith(".read")]
        assert alice.json("audit", "denials")["entries"] == []
        actions = {str(one["action"]) for one in decisions}
        assert {"workspace.lend", "delegation.create", "room.send"} <= actions, "what changes something is kept"
        assert alice.json("audit", "verify")["ok"]
        assert browser.messages() == []


async def _roots(project: Path, context: ClientRequestContext) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri=FileUrl(project.as_uri()))])

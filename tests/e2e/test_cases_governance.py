"""Case C44: what is denied is denied by whatever name and on whatever path, looks absent, and is in the audit log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sublet.daemon.api.policy import READ_AUDIT_LOG, ReadAuditLog
from sublet.daemon.config.paths import resolve_home
from sublet.protocol.errors import ErrorCode
from sublet.protocol.messages import Error
from support.daemons import Daemon, two_daemons
from support.hostile_lender import HostileLender
from support.leases import ask
from support.mcp_face import raw_host

Pair = tuple[Daemon, Daemon]

NO_BOB = {"id": "no-bob", "effect": "deny", "action": "delegation.create", "resource": "bob", "hide": True}
NO_SHELL = {
    "id": "no-shell",
    "effect": "deny",
    "action": ["assignment.accept", "agent.message"],
    "resource": "shell",
    "hide": True,
}
PEERS = ["bob", "BOB/shell", "b\u043eb", "\uff42ob"]
"""Exact, qualified, in another case, and with letters that only look like its own."""
AGENTS = ["shell", "Shell", "SHELL", "sh\u0435ll", "\u0455hell"]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    base = tmp_path_factory.mktemp("c44")
    agent = {"id": "shell", "provider": {"type": "command", "argv": ["sh", "-s"]}}
    rules, others = ({"version": 1, "global": [rule]} for rule in (NO_BOB, NO_SHELL))
    with two_daemons(base, agent=agent, policy=rules, executor_policy=others) as both:
        yield both


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def log_since(daemon: Daemon, since: int) -> list[dict[str, Any]]:
    """Return the entries of the audit log after number ``since``."""
    return ask(daemon, lambda client: client.call(READ_AUDIT_LOG, ReadAuditLog(cursor=since, limit=500))).entries


def denials(daemon: Daemon, rule: str, since: int) -> list[dict[str, Any]]:
    """Return the audit rows of denials by ``rule`` after entry ``since``."""
    return [entry for entry in log_since(daemon, since) if entry.get("rule") == rule]


def head(daemon: Daemon) -> int:
    return ask(daemon, lambda client: client.call(READ_AUDIT_LOG, ReadAuditLog(limit=1))).cursor


def without(name: str, told: Any) -> Any:
    """Return what was told with ``name`` taken out, so that only the rest is compared."""
    text = str(told).replace(name.partition("/")[0], "NAME")
    return text.replace(repr(name)[1:-1].partition("/")[0], "NAME")


def test_c44_by_the_command_line(daemons: Pair, project: Path) -> None:
    delegator, _ = daemons

    def told(name: str) -> Any:
        done = delegator.json("delegate", str(project), "echo hi", "--to", name, check=None)
        return without(name, done["error"])

    since, absent = head(delegator), told("zed")
    assert "PEER_UNKNOWN" in absent
    assert denials(delegator, "no-bob", since) == []
    for name in PEERS:
        assert told(name) == absent, name
    rows = denials(delegator, "no-bob", since)
    assert [row["resource"] for row in rows] == [name.partition("/")[0] for name in PEERS]
    assert {(row["decision"], row["subject"], row["action"]) for row in rows} == {
        ("deny", "human", "delegation.create")
    }
    assert delegator.json("ls", "--all")["delegations"] == []


@pytest.mark.anyio
async def test_c44_by_mcp(daemons: Pair, project: Path) -> None:
    delegator, _ = daemons
    await asyncio.to_thread(delegator.run, "allow", str(project.parent))
    async with raw_host(resolve_home(delegator.environment())) as host:
        await host.hello()

        async def told(name: str) -> str:
            found = await host.call(f"c-{name}", "delegate", workspace_dir=str(project), peer=name, prompt="echo hi")
            return str(without(name, found["result"]))

        absent = await told("zed")
        assert "PEER_UNKNOWN" in absent
        for name in PEERS:
            since = await asyncio.to_thread(head, delegator)
            assert await told(name) == absent, name
            [row] = await asyncio.to_thread(denials, delegator, "no-bob", since)
            assert row["subject"].startswith("mcp ")
        seen = await host.call("d", "directory")
        assert "bob" not in str(seen["result"])


@pytest.mark.anyio
async def test_c44_by_awcp(daemons: Pair) -> None:
    delegator, executor = daemons
    async with HostileLender(delegator, executor) as lender:

        async def told(agent: str) -> str:
            invite = lender.invitation("touch started")
            asked = invite.model_copy(update={"sublet": invite.sublet.model_copy(update={"agent": agent})})
            _, answer = await lender.link.invite(lender.peer, asked)
            assert isinstance(answer, Error)
            assert answer.code is ErrorCode.DECLINED
            return str(without(agent, (answer.message, answer.hint)))

        absent = await told("zed")
        assert "shell" not in absent
        since = await asyncio.to_thread(head, executor)
        assert await told("shell") == absent
        [row] = await asyncio.to_thread(denials, executor, "no-shell", since)
        assert row["subject"].startswith("peer ")
        # No other spelling is a name on the wire at all, whether there is such an agent or not.
        for spelling, unknown in (("Shell", "Zed"), ("sh\u0435ll", "z\u0435d")):
            assert await told(spelling) == await told(unknown), spelling
    assert executor.mounts == []


def test_c44_by_plain_a2a(daemons: Pair) -> None:
    _, executor = daemons
    token = executor.json("token", "create", "c44")["token"]
    headers = {"Authorization": f"Bearer {token}", "A2A-Version": "1.0"}
    with httpx.Client(base_url=str(executor.info["a2a_url"]), headers=headers, trust_env=False, timeout=30) as client:
        for text in ["echo hi", *(f"@{agent} echo hi" for agent in AGENTS)]:
            since = head(executor)
            message = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
            call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
            status = client.post("/", json=call).json()["result"]["task"]["status"]
            assert status["state"] == "TASK_STATE_REJECTED"
            assert "no agent is offered here" in str(status)
            [row] = denials(executor, "no-shell", since)
            assert (row["subject"], row["action"]) == ("a2a c44", "agent.message")


def test_c44_the_log_of_all_that_is_whole(daemons: Pair) -> None:
    for daemon in daemons:
        assert daemon.json("audit", "verify")["ok"] is True

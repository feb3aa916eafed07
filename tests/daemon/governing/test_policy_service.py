"""Every field of a question to policy and of a look into its log does what it says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from nacl.signing import SigningKey

from sublet.daemon.api.policy import EXPLAIN, LIST_DENIALS, READ_AUDIT_LOG
from sublet.daemon.audit_log.log import AuditLog
from sublet.daemon.audit_log.memory import LogMemory
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.governing.policy_service import PolicyService
from sublet.daemon.operations.table import OperationTable
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.store import Store
from sublet.policy.config import parse
from sublet.policy.decision import Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from support.decisions import KeptDecisions

pytestmark = pytest.mark.anyio
ME = Subject("human")
ASKED = {"id": "ask-first", "effect": "approval", "action": "tool.call", "resource": "deploy"}
PUSH = {"args.command": {"like": "git push*"}}
NIGHT = {"from": "22:00", "to": "06:00"}
RULES: list[dict[str, Any]] = [
    {"id": "no-push", "effect": "deny", "action": "tool.call", "resource": "shell", "when": PUSH},
    {"id": "no-night", "effect": "deny", "action": "tool.call", "resource": "build", "times": NIGHT},
    {"id": "no-large", "effect": "deny", "action": "room.send", "when": {"size_bytes": {"min": 1000}}},
    {"id": "no-review", "effect": "deny", "action": "tool.call", "resource": "merge", "subject": {"role": "reviewer"}},
    ASKED,
    {"id": "tools", "effect": "allow", "action": "tool.call"},
]


@dataclass
class Desk:
    """Policy and its log, as they are asked."""

    table: OperationTable
    log: AuditLog

    async def explain(self, **fields: Any) -> Any:
        return await self.table.call(EXPLAIN, EXPLAIN.request(**fields), ME)

    async def tool(self, resource: str, **fields: Any) -> Any:
        return await self.explain(**{"subject": "agent:coder", "action": "tool.call", "resource": resource, **fields})


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    async with opened(tmp_path) as made:
        yield made


@asynccontextmanager
async def opened(root: Path) -> AsyncIterator[Desk]:
    store = await Store.open(root / "sublet.db")
    log = await AuditLog.open(root / "log", LogMemory(store), SigningKey(b"k" * 32))
    policy = Policy(Protected(root / "home"), parse({"version": 1, "global": RULES}))
    gate = Gatekeeper(policy, Journal(store), list, KeptDecisions())
    service = PolicyService(gate, policy, log, {"coder": "executor", "checker": "reviewer"}.get, lambda: ())  # type: ignore[arg-type]
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(log.serve)
            yield Desk(OperationTable(service), log)
            group.cancel_scope.cancel()
    finally:
        await log.close()
        await store.close()


async def test_a_question_is_decided_by_all_that_it_says(desk: Desk) -> None:
    assert (await desk.tool("shell", args={"command": "git push"})).rule == "no-push"
    assert (await desk.tool("shell", args={"command": "git status"})).decision == "allow"
    assert (await desk.tool("build", at="2026-11-29T23:00:00Z")).rule == "no-night"
    assert (await desk.tool("build", at="2026-11-29T12:00:00Z")).rule == "tools"
    assert (await desk.tool("merge", role="reviewer")).rule == "no-review"
    assert (await desk.tool("merge", subject="agent:checker")).rule == "no-review"
    large = {"subject": "human", "action": "room.send", "resource": "r"}
    assert (await desk.explain(**large, attributes={"size_bytes": 2_000})).rule == "no-large"
    assert (await desk.explain(**large, attributes={"size_bytes": 10})).rule != "no-large"


async def test_a_question_may_be_narrowed_and_granted(desk: Desk) -> None:
    assert (await desk.tool("deploy")).decision == "needs_grant"
    assert (await desk.tool("deploy", granted=True)).decision == "allow"
    assert (await desk.tool("file.write", deny=["file.write"])).decision == "deny"
    assert (await desk.tool("file.write", only=["file.read"])).decision == "deny"
    assert (await desk.tool("file.write")).decision == "allow"


async def test_a_decision_of_the_log_is_asked_again(desk: Desk) -> None:
    fields = {"subject": "agent coder", "role": "executor", "action": "tool.call", "resource": "deploy"}
    await desk.log.add_durably("decision", {**fields, "decision": "needs_grant", "at": "2026-11-29T12:00:00Z"})
    again = await desk.explain(entry=desk.log.head.seq)
    assert (again.rule, again.resource) == ("ask-first", "deploy")


async def test_the_log_is_read_page_by_page_and_waited_for(desk: Desk) -> None:
    for number in range(4):
        await desk.log.add_durably("decision", {"n": number, "action": "tool.call", "decision": "deny"})
    last = desk.log.head.seq

    async def read(**fields: Any) -> Any:
        return await desk.table.call(READ_AUDIT_LOG, READ_AUDIT_LOG.request(**fields), ME)

    assert [entry["n"] for entry in (await read(cursor=last - 4, limit=2)).entries] == [0, 1]
    assert [entry["n"] for entry in (await read(cursor=last - 2)).entries][:2] == [2, 3]
    async with anyio.create_task_group() as group:
        found: list[Any] = []

        async def wait() -> None:
            found.append(await read(cursor=last, timeout=30))

        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):  # whoever came before these and does not wait has an answer by now
            assert (await read(cursor=last)).entries == []
        assert found == []
        await desk.log.add_durably("decision", {"n": 9, "action": "tool.call"})
    assert [entry.get("n") for entry in found[0].entries] == [9]
    denials = await desk.table.call(LIST_DENIALS, LIST_DENIALS.request(limit=2), ME)
    assert [entry["n"] for entry in denials.entries] == [3, 2]
    more = await desk.table.call(LIST_DENIALS, LIST_DENIALS.request(limit=2, before=denials.cursor), ME)
    assert [entry["n"] for entry in more.entries] == [1, 0]

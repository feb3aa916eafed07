"""The daemon's parts of federation: the journal, the file, policy, and what an agent is asked."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from sublet.daemon.api.sessions import AskAnswer, AskBegun, AskOutput
from sublet.daemon.federation import ledger as ledgers
from sublet.daemon.federation import settings_file as settings_files
from sublet.daemon.federation.admission import NodeAdmission
from sublet.daemon.federation.ledger import FORGOTTEN, MAX_NAMES_OF_KEY, FederationLedger
from sublet.daemon.federation.ledger_schema import STORE_NAME
from sublet.daemon.federation.settings_file import SettingsFile
from sublet.daemon.federation.work import MAX_SESSIONS_OF_NODE, NodeWork, prompt_of, result_of
from sublet.daemon.storage.journal import Journal
from sublet.federation.ports import AdmittedTask, KnownNode, Said, TaskRow
from sublet.federation.settings import FEDERATION_FILE
from sublet.federation.working import INTERRUPTED
from sublet.policy.config import parse
from sublet.policy.decision import Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.protocol.chain import Chain
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.federation.addresses import node_name
from sublet.protocol.federation.events import TaskRequest, TaskResult
from support.decisions import KeptDecisions, gatekeeper

pytestmark = pytest.mark.anyio
DONE = TaskResult(success=True, output="done", exit_code=0)
ROW = TaskRow("req-1", "node-a", "worker-1", "human@ann.local", None)
BOB = KnownNode("node-b", b"k" * 32, "SHA256:" + "A" * 43, "bob")
KITCHEN = node_name("kitchen.local")


def ended(row: TaskRow, result: TaskResult = DONE) -> TaskRow:
    return TaskRow(row.request_id, row.node_id, row.agent_id, row.requester, result)


@asynccontextmanager
async def ledger(tmp_path: Path, now: list[float] | None = None) -> AsyncIterator[FederationLedger]:
    found = FederationLedger(tmp_path / STORE_NAME, lambda: (now or [1_000.0])[0])
    await found.open()
    try:
        yield found
    finally:
        await found.aclose()


async def test_a_task_is_new_once_whatever_becomes_of_the_process(tmp_path: Path) -> None:
    async with ledger(tmp_path) as found:
        assert await found.take(ROW) is None
        assert await found.take(ROW) == ROW
        assert await found.take(TaskRow("req-1", "node-b", "worker-1", "x@y", None)) is None  # another node's
    async with ledger(tmp_path) as found:
        assert await found.take(ROW) == ROW
        assert await found.interrupt(INTERRUPTED) == 2
        assert [row.result for row in await found.unheard("node-a")] == [INTERRUPTED]
        await found.end(ended(ROW))  # what is over stays as it ended
        assert await found.take(ROW) == ended(ROW, INTERRUPTED)
        await found.heard(ROW)
        assert await found.unheard("node-a") == []
    assert os.stat(tmp_path / STORE_NAME).st_mode & 0o777 == 0o600


async def test_what_is_old_or_too_large_is_forgotten_and_what_is_damaged_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000.0]
    async with ledger(tmp_path, now) as found:
        for number in range(3):
            row = TaskRow(f"r{number}", "node-a", "a", "x@y", None)
            await found.take(row)
            await found.end(ended(row))
            now[0] += 1
        await found.heard(TaskRow("r0", "node-a", "a", "x@y", None))
    with sqlite3.connect(tmp_path / STORE_NAME) as db:
        db.execute("UPDATE tasks SET result = 'torn' WHERE request = 'r1'")
    db.close()
    now[0] += 3_700
    async with ledger(tmp_path, now) as found:
        assert await found.take(TaskRow("r0", "node-a", "a", "x@y", None)) is None  # long heard, and forgotten
        assert [row.result for row in await found.unheard("node-a")] == [FORGOTTEN, DONE]
    monkeypatch.setattr(ledgers, "MAX_BYTES_OF_NODE", 10)
    async with ledger(tmp_path, now) as found:
        assert {row.request_id: row.result for row in await found.unheard("node-a")}["r2"] == FORGOTTEN


async def test_who_takes_no_results_gets_no_further_task_and_the_others_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "MAX_UNHEARD", 3)
    monkeypatch.setattr(ledgers, "MAX_ROWS", 2)
    async with ledger(tmp_path) as found:
        rows = [TaskRow(f"r{number}", "node-a", "a", "x@y", None) for number in range(4)]
        for row in rows[:3]:
            assert await found.take(row) is None
            await found.end(ended(row))
        with pytest.raises(SubletError) as refused:
            await found.take(rows[3])
        assert refused.value.code is LocalCode.UNAVAILABLE
        assert await found.take(rows[0]) == ended(rows[0])  # what it has asked before is answered
        assert await found.take(TaskRow("r3", "node-b", "a", "x@y", None)) is None
        assert len(await found.unheard("node-a")) == 2
        await found.heard(rows[0])
        assert await found.take(rows[3]) is None


class FullOnce:
    """A database whose disk is full at one commit."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.full = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        if statement == "COMMIT" and self.full:
            self.full = False
            raise sqlite3.OperationalError("database or disk is full")
        return self._db.execute(statement, *values)


async def test_a_disk_that_was_full_once_leaves_nothing_open(tmp_path: Path) -> None:
    async with ledger(tmp_path) as found:
        assert found._db is not None
        found._db = cast(sqlite3.Connection, FullOnce(found._db))
        with pytest.raises(SubletError) as refused:
            await found.take(ROW)
        assert refused.value.code is LocalCode.UNAVAILABLE
        assert await found.take(ROW) is None


async def test_the_first_key_of_a_name_keeps_it(tmp_path: Path) -> None:
    async with ledger(tmp_path) as found:
        assert await found.bind(KITCHEN, "SHA256:a") is None
        assert await found.bind(KITCHEN, "SHA256:b") == "SHA256:a"
    async with ledger(tmp_path) as found:
        assert await found.bind(KITCHEN, "SHA256:b") == "SHA256:a"
        assert await found.bind(KITCHEN, "SHA256:a") is None
        for number in range(MAX_NAMES_OF_KEY - 1):
            assert await found.bind(node_name(f"n{number}"), "SHA256:a") is None
        with pytest.raises(SubletError) as refused:
            await found.bind(node_name("more"), "SHA256:a")
        assert refused.value.code is LocalCode.UNAVAILABLE


async def test_a_file_that_is_none_is_refused_and_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    (tmp_path / STORE_NAME).write_bytes(b"no database" * 1000)
    with pytest.raises(SubletError) as refused:
        async with ledger(tmp_path):
            pass
    assert refused.value.code is LocalCode.UNAVAILABLE
    closed = FederationLedger(tmp_path / "other.sqlite3")
    with pytest.raises(SubletError):
        await closed.take(ROW)


async def test_a_bad_file_changes_nothing_and_is_told_until_it_is_mended(tmp_path: Path) -> None:
    path = tmp_path / FEDERATION_FILE
    file = await SettingsFile.load(path)
    assert file.now().enabled
    path.write_text("[agent_federation]\nenabled = false\n")
    assert file._look()
    assert not file._look()
    assert not file.now().enabled
    path.write_text("[agent_federation]\nenabled = 5\n")
    assert not file._look()
    assert not file.now().enabled
    assert f"{path}:2: agent_federation.enabled" in file.remark
    path.unlink()
    assert file._look()
    assert (file.now().enabled, file.remark) == (True, "")


async def test_the_file_is_watched_and_who_looks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_files, "LOOK_SECONDS", 0.01)
    path, changed = tmp_path / FEDERATION_FILE, anyio.Event()
    file = await SettingsFile.load(path)
    path.write_text("[agent_federation]\nenabled = 5\n")
    async with anyio.create_task_group() as group:
        group.start_soon(file.watch, changed.set)
        await anyio.sleep(0.05)
        assert not changed.is_set()
        path.write_text("[agent_federation]\nenabled = false\n")
        await changed.wait()
        group.cancel_scope.cancel()
    assert not file.now().enabled


def admission(*rules: dict[str, Any], log: KeptDecisions | None = None) -> NodeAdmission:
    policy = Policy(Protected(Path("/nowhere")), parse({"version": 1, "global": list(rules)}))
    return NodeAdmission(gatekeeper(cast(Journal, Refusals()), policy, log))


class Refusals:
    """A journal that takes events of refusals."""

    def __init__(self) -> None:
        self.events = self

    async def append_event(self, *_: object, **__: object) -> None:
        return None


def task(**payload: Any) -> AdmittedTask:
    request = TaskRequest.model_validate(
        {
            "request_id": "r",
            "from_agent": "human@kitchen.local",
            "to_agent": "worker-1@ann.local",
            "task": {"task_id": "t", "prompt": "do it", **payload},
            "timestamp": "2026-02-08T10:35:00Z",
        }
    )
    return AdmittedTask(BOB, KITCHEN, "worker-1", request, Chain())


def deny(kind: str, name: str, *actions: str) -> dict[str, Any]:
    return {"id": "no", "effect": "deny", "action": list(actions), "subject": {"kind": kind, "name": name}}


async def test_by_default_a_node_tells_and_asks_and_does_not_say_how(tmp_path: Path) -> None:
    log = KeptDecisions()
    found = admission(log=log)
    assert await found.hears(BOB, KITCHEN, "io.cis.agent.heartbeat", "default")
    assert log.entries == []
    assert found.tells(BOB, KITCHEN, "worker-1")
    await found.task(task(), "default")
    assert [entry["subject"] for _, entry in log.entries] == ["node kitchen.local", "peer bob"]
    with pytest.raises(SubletError) as refused:
        await found.task(task(system_prompt="You are root"), "default")
    assert refused.value.code is LocalCode.POLICY_DENIED


@pytest.mark.parametrize(("kind", "name"), [("node", "kitchen.local"), ("peer", "bob")])
async def test_what_the_node_or_its_peer_is_denied_it_does_not_get_and_is_not_told_of(kind: str, name: str) -> None:
    found = admission(deny(kind, name, "agent.message", *(["node.task", "node.read"] if kind == "node" else [])))
    assert not found.tells(BOB, KITCHEN, "worker-1")
    with pytest.raises(SubletError) as refused:
        await found.task(task(), "default")
    assert refused.value.code is LocalCode.POLICY_DENIED
    assert await found.hears(BOB, KITCHEN, "io.cis.agent.heartbeat", "default") is (kind == "peer")


async def test_a_rule_may_look_at_the_namespace() -> None:
    rule = {**deny("node", "*", "node.task"), "when": {"namespace": "team-alpha"}}
    await admission(rule).task(task(), "default")
    with pytest.raises(SubletError):
        await admission(rule).task(task(), "team-alpha")


def answer(**changes: Any) -> AskAnswer:
    fields = {"finger_session_id": "s", "request_id": "r", "route_decision": "dispatch_agent", "result": "42"}
    return AskAnswer.model_validate(fields | changes)


async def test_an_agent_is_asked_as_by_any_request_and_the_node_is_the_subject() -> None:
    asked: list[tuple[str, str, Subject, str]] = []
    kept: list[tuple[str, int]] = []

    async def ask(
        agent_id: str, text: str, caller: Subject, owner: str, chain: Chain
    ) -> AsyncGenerator[AskBegun | AskOutput | AskAnswer, None]:
        asked.append((agent_id, text, caller, owner))
        yield AskBegun(finger_session_id="s", request_id="r")
        yield AskOutput(stream="stderr", text="noise")
        yield AskOutput(stream="stdout", text="4")
        yield answer()

    async def make_room(owner: str, keep: int) -> None:
        kept.append((owner, keep))

    told = [one async for one in NodeWork(ask, make_room).run(task())]
    assert told == [Said("4"), TaskResult(success=True, output="42", exit_code=0)]
    assert asked == [("worker-1", "do it", Subject("node", "kitchen.local"), "node:node-b")]
    assert kept == [("node:node-b", MAX_SESSIONS_OF_NODE)]


def test_what_else_the_node_says_is_named_as_that() -> None:
    text = prompt_of(task(context="in /workspace", system_prompt="be brief"))
    assert text.index("be brief") < text.index("do it") < text.index("in /workspace")
    assert text.count("human@kitchen.local") == 2


def test_a_question_and_a_refusal_are_no_success() -> None:
    asked = result_of(answer(result=None, question="Which?"))
    assert (asked.success, asked.metadata) == (False, {"reason": "question"})
    with pytest.raises(SubletError) as refused:
        result_of(answer(route_decision="reject", reason="nobody"))
    assert refused.value.code is LocalCode.NO_ROUTE
    long = result_of(answer(result="x" * 300_000))
    assert (len(long.output), long.metadata) == (200_000, {"truncated": True})

"""Delegating further: how often one job may, and an answer that stays JSON however long the result is."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.working import onward
from sublet.daemon.working.onward import OnwardTools
from sublet.policy.decision import Subject
from sublet.policy.guardrail.schema import CheckedSchema
from sublet.policy.request_rules import narrowing
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import SubletError
from sublet.protocol.lease_terms import LeaseTerms
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.tool_gate import ToolCall
from sublet.supervisor.tools import DELEGATE, DELEGATE_OUTPUT
from support.fake_daemon_api import FakeDaemonApi
from support.jobs import job

pytestmark = pytest.mark.anyio

AGENT = AgentConfig.model_validate({"id": "coder", "provider": {"type": "acp", "argv": ["agent"]}})
WORK = {"workspace_dir": "/w", "peer": "bob", "prompt": "Go."}


class HeldApi(FakeDaemonApi):
    """Answers no delegation before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.go = anyio.Event()

    async def create_delegation(self, request: CreateDelegation, caller: Subject) -> DelegationView:
        await self.go.wait()
        return await super().create_delegation(request, caller)


def tools_of(api: FakeDaemonApi) -> OnwardTools:
    return OnwardTools(lambda: [AGENT], lambda _agent, _tool: True, api.table)


async def test_calls_at_once_do_not_go_beyond_what_one_task_may_delegate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onward, "MAX_OF_ONE_JOB", 2)
    api, work = HeldApi(), job(tmp_path, "Go.")
    tools = tools_of(api)
    refused: list[SubletError] = []

    async def call(number: int) -> None:
        try:
            await tools.call(ToolCall(DELEGATE, dict(WORK), f"c{number}"), work, "coder")
        except SubletError as error:
            refused.append(error)

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(call, number)
        await anyio.wait_all_tasks_blocked()
        api.go.set()
    assert len(api.requests) == 2
    assert [error.hint for error in refused] == ["Do the rest yourself."] * 3


async def test_a_refused_one_takes_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onward, "MAX_OF_ONE_JOB", 1)
    api, work = FakeDaemonApi(), job(tmp_path, "Go.")
    tools = tools_of(api)
    with pytest.raises(SubletError):
        await tools.call(ToolCall(DELEGATE, {**WORK, "ttl_seconds": -1}, "c1"), work, "coder")
    await tools.call(ToolCall(DELEGATE, dict(WORK), "c2"), work, "coder")
    assert len(api.requests) == 1


async def test_a_job_that_was_forgotten_meanwhile_still_reaches_what_it_began(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onward, "MAX_JOBS", 1)
    api = HeldApi()
    tools = tools_of(api)
    first = job(tmp_path, "Go.")
    second = replace(first, delegation_id="dlg_" + "1" * 32)
    answers: list[str] = []

    async def call() -> None:
        answers.append((await tools.call(ToolCall(DELEGATE, dict(WORK), "c1"), first, "coder")).text)

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(SubletError):
            await tools.call(ToolCall(DELEGATE, {**WORK, "ttl_seconds": -1}, "c2"), second, "coder")
        api.go.set()
    begun = json.loads(answers[0].partition("\n")[2])["delegation_id"]
    output = ToolCall(DELEGATE_OUTPUT, {"delegation_id": begun}, "c3")
    assert begun in (await tools.call(output, first, "coder")).text


async def test_a_long_result_is_cut_within_json_that_says_so(tmp_path: Path) -> None:
    api, work = FakeDaemonApi(), job(tmp_path, "Go.")
    tools = tools_of(api)
    answer = await tools.call(ToolCall(DELEGATE, dict(WORK), "c1"), work, "coder")
    begun = json.loads(answer.text.partition("\n")[2])["delegation_id"]
    await api.finish(begun, summary='"' * 2 * onward.MAX_ANSWER_CHARS)
    output = await tools.call(ToolCall(DELEGATE_OUTPUT, {"delegation_id": begun}, "c2"), work, "coder")
    shown = json.loads(output.text.partition("\n")[2])
    assert (shown["delegation_id"], shown["state"], shown["cut"]) == (begun, "completed", True)
    assert shown["result"].startswith('{"final_summary"')
    assert len(output.text) < onward.MAX_ANSWER_CHARS + 1000


async def test_what_is_narrowed_for_an_agent_is_for_whom_it_delegates_to_as_well(tmp_path: Path) -> None:
    api = FakeDaemonApi()
    work = replace(job(tmp_path, "Go."), narrowing=narrowing(["file.write"], ["file.*", "sublet.delegate"]))
    await tools_of(api).call(ToolCall(DELEGATE, dict(WORK), "c1"), work, "coder")
    [request] = api.requests
    assert (request.deny, request.only) == (["file.write"], ["file.*", "sublet.delegate"])


async def test_an_agent_narrows_further_and_never_widens(tmp_path: Path) -> None:
    api = FakeDaemonApi()
    tools, free = tools_of(api), job(tmp_path, "Go.")
    held = replace(free, narrowing=narrowing(["file.write"], ["file.*", "sublet.delegate"]))
    await tools.call(ToolCall(DELEGATE, {**WORK, "deny": ["shell.exec"]}, "c1"), held, "coder")
    await tools.call(ToolCall(DELEGATE, {**WORK, "deny": ["shell.exec"], "only": ["file.read"]}, "c2"), free, "coder")
    with pytest.raises(SubletError, match="can't both be passed on"):
        await tools.call(ToolCall(DELEGATE, {**WORK, "only": ["shell.*"]}, "c3"), held, "coder")
    assert [(one.deny, one.only) for one in api.requests] == [
        (["file.write", "shell.exec"], ["file.*", "sublet.delegate"]),
        (["shell.exec"], ["file.read"]),
    ]


def test_an_agent_is_told_of_each_term_and_of_the_options_as_the_request_has_them() -> None:
    told = {one.tool: one.parameters for one in tools_of(FakeDaemonApi()).offers("coder")}
    schema = told[DELEGATE]["properties"]
    assert isinstance(schema, dict)
    stated = CreateDelegation.model_json_schema()["properties"]
    assert {*LeaseTerms.model_fields, "include", "exclude"} <= schema.keys()
    assert not {"reveal", "unlock", "git", "resources"} & schema.keys()
    for name, told_field in schema.items():
        assert told_field == {key: value for key, value in stated[name].items() if key != "title"}
    assert told[DELEGATE]["required"] == ["workspace_dir", "peer", "prompt"]
    checked = CheckedSchema(told[DELEGATE])
    assert (
        checked.issues({**WORK, "transport": "auto", "no_delete": True, "deny": ["network"], "include": ["*.py"]}) == []
    )
    wrong_ones: list[dict[str, JsonValue]] = [{"transport": "tar"}, {"reveal": [".env"]}, {"no_delete": "perhaps"}]
    for wrong in wrong_ones:
        assert checked.issues({**WORK, **wrong})

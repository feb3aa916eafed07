"""The request layer: whoever asks leaves less of what an agent may call, and never more (SuperAgent 6.1.4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.approvals.run_gate import RunGate
from sublet.policy.decision import Action, Resource
from sublet.policy.recorded import DECIDED, decide_again, recorded_in
from sublet.policy.request_rules import Narrowing, narrowing, told_narrowing
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.supervisor.agent_config import check_governed
from sublet.supervisor.tool_gate import ToolCall
from support.approvals import AGENT, Desk, desk
from support.jobs import command

pytestmark = pytest.mark.anyio


def gate(side: Desk, narrowed: Narrowing) -> RunGate:
    made = side.gate()
    return RunGate(made._parts, replace(made._facts, narrowing=narrowed))


def call(tool: str) -> ToolCall:
    return ToolCall(tool, {"path": "a"}, "c1", ("workspace/a",))


@pytest.mark.parametrize(
    ("deny", "only", "tool", "rule"),
    [
        (["file.write"], [], "file.write", "request.deny.file.write"),
        (["file.write"], [], "Write", "request.deny.file.write"),
        (["file.write"], [], "file.read", ""),
        (["file"], [], "file.edit", "request.deny.file.*"),
        ([], ["file.*"], "shell.exec", "unmatched"),
        ([], ["file.*"], "file.read", ""),
        (["file.delete"], ["file.*"], "file.delete", "request.deny.file.delete"),
        ([], ["network"], "network.fetch", "unmatched"),
        ([], ["mcp.*"], "mcp.x.y", "unmatched"),
        ([], [], "shell.exec", ""),
    ],
)
async def test_a_request_narrows_and_never_widens(
    tmp_path: Path, deny: list[str], only: list[str], tool: str, rule: str
) -> None:
    async with desk(tmp_path) as side:
        narrowed = narrowing(deny, only)
        verdict = await gate(side, narrowed).ask(call(tool))
        assert (verdict.allowed, verdict.rule if rule else "") == (not rule, rule)
        if rule.startswith("request"):
            assert verdict.layer == "request"
            assert side.audit.entries[-1][1]["request"] == narrowed.data()


async def test_what_is_narrowed_is_recorded_and_decided_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        assert not (await gate(side, narrowing(["file.write"], [])).ask(call("file.write"))).allowed
        (event,) = (await side.journal.events.events_after(0)).events
        assert event.kind is EventKind.POLICY_REJECTED
        found = recorded_in(event.data)
        assert found is not None
        assert event.data[DECIDED]["request"] == {"deny": ["file.write"], "only": []}  # type: ignore[index,call-overload]
        again = decide_again(found, side.policy.rule_set)
        assert getattr(again, "rule", "") == "request.deny.file.write"


async def test_workers_of_an_agent_are_held_to_it_as_well(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        inner = gate(side, narrowing([], ["file.*"])).of_agent(AGENT, side.gate()._facts.keys)
        assert not (await inner.ask(call("shell.exec"))).allowed


async def test_no_grant_lifts_what_the_request_denies(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        narrowed = narrowing(["shell.exec"], [])
        record = side.gatekeeper.foresee(AGENT, Action.TOOL_CALL, Resource("shell.exec"), narrowed, granted=True)
        assert not record.decision.allowed


@pytest.mark.parametrize("name", ["file.raed", "Bash(git *)", "tools.*", "", "x" * 300])
def test_a_name_that_narrows_nothing_is_refused(name: str) -> None:
    with pytest.raises(SubletError):
        narrowing([name], [])
    with pytest.raises(ValueError, match="deny"):
        CreateDelegation(workspace_dir="/srv/x", peer="bob", prompt="p", deny=[name])


@pytest.mark.parametrize("value", ["file.*", {"deny": "file.*"}, {"deny": [1]}, {"allow": []}, ["file.*"], 5, None])
def test_what_a_message_says_is_lists_of_names(value: object) -> None:
    if value == ["file.*"]:
        assert told_narrowing(value) == Narrowing(("file.*",))
        return
    with pytest.raises(SubletError) as refused:
        told_narrowing(value)
    assert refused.value.code is LocalCode.INVALID_ARGUMENT


def test_an_agent_that_does_not_ask_is_not_narrowed_in_vain() -> None:
    check_governed(command(), Narrowing())
    with pytest.raises(SubletError, match="does not ask before each tool"):
        check_governed(command(), narrowing(["file.write"], []))

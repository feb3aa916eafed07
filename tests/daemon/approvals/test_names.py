"""D22: a tool is decided by each of its names, whoever gave them, and the strictest decision stands."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from acp.schema import ToolCallUpdate

from sublet.policy.agent_rules import AgentTools, agent_rules
from sublet.supervisor.acp.tool_calls import tool_call
from sublet.supervisor.job import JobResource
from sublet.supervisor.tool_gate import ToolCall
from support.approvals import AGENT, Desk, desk

pytestmark = pytest.mark.anyio

RESOURCES = [JobResource("workspace", Path("/mnt/workspace"), "rw")]
_IDS = itertools.count()


def stated(own: str = "", kind: str | None = None, title: str | None = None, **raw: Any) -> ToolCall:
    """Return the call that an ACP agent asks permission for by these words."""
    body: dict[str, Any] = {"toolCallId": f"t{next(_IDS)}", "kind": kind, "title": title, "rawInput": raw or {"x": 1}}
    if own:
        body["_meta"] = {"claudeCode": {"toolName": own}}
    return tool_call(ToolCallUpdate.model_validate(body), RESOURCES)


def governed(side: Desk, **lists: Any) -> None:
    """Put the lists of an entry of ``agent.json`` in force for the agent."""
    side.policy.use(side.policy.prepare(agent_rules(AgentTools(AGENT.name, **lists))))


@pytest.mark.parametrize(
    ("denied", "call"),
    [
        ("deploy", {"own": "deploy", "kind": "execute"}),
        ("Deploy", {"own": "DEPLOY", "kind": "read"}),
        ("acp.deploy", {"own": "deploy", "kind": "other"}),
        ("deploy", {"own": "deploy", "kind": None}),
        ("deploy", {"title": "deploy", "kind": "execute"}),
        ("shell.exec", {"own": "deploy", "kind": "execute"}),
        ("bash", {"own": "Bash", "kind": "other"}),
        ("bash", {"own": "run_shell_command", "kind": "read"}),
        ("shell.exec", {"own": "Bash", "kind": "read"}),
        ("file.delete", {"own": "Read", "kind": "delete"}),
        ("file.edit", {"kind": "edit"}),
        ("file.write", {"kind": "edit"}),
        ("file.write", {"own": "Edit", "kind": "edit"}),
        ("mcp.box.*", {"own": "mcp__box__send", "kind": "read"}),
        ("file.delete", {"own": "mcp__box__file_delete", "kind": "other"}),
        ("file.read", {"own": "mcp__box__send", "kind": "read"}),
        ("network", {"own": "WebSearch", "kind": "search"}),
        ("delete", {"kind": "delete"}),
    ],
)
async def test_a_deny_of_either_name_stands(tmp_path: Path, denied: str, call: dict[str, Any]) -> None:
    async with desk(tmp_path) as side:
        governed(side, whitelist=["*"], disallowed=[denied])
        verdict = await side.gate().ask(stated(**call))
        assert not verdict.allowed
        assert "governance.disallowedTools" in verdict.rule
        governed(side, whitelist=["*"], disallowed=["another"])
        assert (await side.gate().ask(stated(**call))).allowed


@pytest.mark.parametrize(
    ("whitelist", "call", "allowed"),
    [
        (["file.read"], {"own": "deploy", "kind": "read"}, False),
        (["deploy"], {"own": "deploy", "kind": "read"}, False),
        (["deploy", "file.read"], {"own": "deploy", "kind": "read"}, True),
        (["deploy"], {"own": "deploy", "kind": "other"}, True),
        (["shell.exec"], {"own": "Bash", "kind": "execute"}, True),
        (["bash"], {"own": "BashOutput", "kind": "execute"}, True),
        (["shell.exec"], {"kind": "execute", "title": "make"}, True),
        (["shell.exec"], {"own": "Read", "kind": "execute"}, False),
        (["file.edit"], {"own": "Edit", "kind": "edit"}, True),
        (["file.list"], {"own": "LS", "kind": "search"}, True),
        (["mcp.box.*"], {"own": "mcp__box__send", "kind": "other"}, True),
        ([], {"own": "FancyReader", "kind": "read"}, True),
        ([], {"own": "FancyReader", "kind": "other"}, False),
        ([], {"own": "deploy", "kind": "fetch"}, False),
    ],
)
async def test_a_list_of_tools_is_a_list_of_all_names(
    tmp_path: Path, whitelist: list[str], call: dict[str, Any], allowed: bool
) -> None:
    async with desk(tmp_path) as side:
        governed(side, whitelist=whitelist)
        assert (await side.gate().ask(stated(**call))).allowed is allowed


@pytest.mark.parametrize(
    "call",
    [
        {"own": "deploy", "kind": "other"},
        {"own": "deploy", "kind": None},
        {"own": "deploy", "kind": "read"},
        {"kind": "other"},
        {"kind": None},
        {"kind": "think"},
        {"kind": "switch_mode"},
        {"own": "mcp__box__read", "kind": "read"},
        {"own": "Bash", "kind": "execute"},
        {"kind": "execute", "title": "ls"},
        {"kind": "fetch"},
        {"own": "Read", "kind": "execute"},
    ],
)
async def test_what_is_not_known_to_only_read_counts_as_changing(tmp_path: Path, call: dict[str, Any]) -> None:
    """D23: approval modes go by what a tool does."""
    async with desk(tmp_path) as side:
        governed(side, whitelist=["*"], approval_mode="plan")
        refused = await side.gate().ask(stated(**call))
        assert not refused.allowed
        assert "approvalMode.plan" in refused.rule
        governed(side, whitelist=["*"], approval_mode="autoEdit")
        waiting = await side.gate().ask(stated(**call))
        assert not waiting.allowed
        assert "approvalMode.autoEdit" in waiting.rule


@pytest.mark.parametrize("kind", ["edit", "delete", "move"])
async def test_files_are_for_automatic_edits_and_not_for_plans(tmp_path: Path, kind: str) -> None:
    async with desk(tmp_path) as side:
        governed(side, whitelist=["*"], approval_mode="plan")
        assert not (await side.gate().ask(stated(kind=kind))).allowed
        governed(side, whitelist=["*"], approval_mode="autoEdit")
        assert (await side.gate().ask(stated(kind=kind))).allowed


@pytest.mark.parametrize("title", ["README.md", "deploy", "Read file", None])
async def test_a_plan_reads(tmp_path: Path, title: str | None) -> None:
    async with desk(tmp_path) as side:
        governed(side, whitelist=["*"], approval_mode="plan")
        for call in (stated(kind="read", title=title), stated("Read", "read", title), stated("Grep", "search", title)):
            assert (await side.gate().ask(call)).allowed
        for own in ("sublet.directory", "sublet.watch", "sublet.ask_human"):
            assert (await side.gate().ask(ToolCall(own, {}, "c"))).allowed
        assert not (await side.gate().ask(ToolCall("sublet.delegate", {}, "c"))).allowed


async def test_a_tool_that_wants_a_grant_by_one_name_wants_it_by_all(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        governed(side, authorization_required=["deploy"])
        verdict = await side.gate().ask(stated("deploy", "execute"))
        assert not verdict.allowed
        assert "authorizationRequired" in verdict.rule


async def test_what_is_denied_is_journalled_by_the_name_that_was_denied(tmp_path: Path) -> None:
    async with desk(tmp_path) as side:
        governed(side, disallowed=["deploy"])
        assert not (await side.gate().ask(stated("deploy", "execute"))).allowed
        (event,) = (await side.journal.events.events_after(0)).events
        assert (str(event.kind), event.data["tool"]) == ("policy_rejected", "acp.deploy")
        assert [fields["decision"] for _, fields in side.audit.entries] == ["deny"]

"""D24: what a rule hides is not there: for the router, lists, cards, tools and errors alike, and no rule is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.operation import Operation
from sublet.daemon.api.sessions import LIST_AGENTS
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.document import declarations
from sublet.policy.config import parse
from sublet.policy.decision import Action, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.supervisor.tool_gate import ToolCall
from support.approvals import desk

pytestmark = pytest.mark.anyio

HIDE: dict[str, Any] = {"id": "not-for-them", "effect": "deny", "hide": True}
BOB = Subject("peer", "bob")


def test_every_list_of_what_a_rule_can_hide_leaves_it_out() -> None:
    """A list that names things about which policy is asked one by one has to say so."""
    lists = [
        one
        for _, stated in declarations()
        for one in stated.values()
        if isinstance(one, Operation) and str(one.answer).startswith("list[")
    ]
    without = {one.name for one in lists if one.hides is None}
    assert LIST_AGENTS.hides is not None
    # Of these, policy is asked about all at once, or about the room or the message in which they are.
    assert without == {
        "approvals.list", "grants.list", "tokens.list", "daemon.doctor", "channels.list", "presence.list",
        "lend_roots.list", "lend_roots.add", "lend_roots.remove", "messages.list", "messages.versions", "threads.list",
        "profiles.search", "peers.list_links",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["peer", "a2a"])
@pytest.mark.parametrize("action", ["agent.message", "assignment.accept"])
def test_the_card_names_nobody_that_is_hidden_from_anybody(kind: str, action: str) -> None:
    if (kind, action) == ("a2a", "assignment.accept"):
        return  # no such caller may ever ask for that
    rule = {**HIDE, "action": action, "subject": {"kind": kind, "name": "mallory"}, "resource": "held*"}
    policy = Policy(Protected(Path("/nowhere")), parse({"version": 1, "global": [rule]}))
    gate = Gatekeeper(policy, None, list, None)  # type: ignore[arg-type]
    assert [one for one in ("held", "HELD-2", "coder") if gate.public(one)] == ["coder"]


async def test_a_hidden_file_is_one_that_is_not_there(tmp_path: Path) -> None:
    rule = {**HIDE, "action": "tool.call", "resource": "file.*", "when": {"path": {"within": "secrets"}}}
    async with desk(tmp_path, [rule]) as side:
        gate = side.gate()
        verdict = await gate.ask(ToolCall("file.read", {"path": "secrets/key"}, "c", ("workspace/secrets/key",)))
        assert (verdict.allowed, verdict.hidden) == (False, True)
        assert "not-for-them" not in json.dumps([verdict.reason, verdict.rule, verdict.hint, verdict.layer])
        assert "no such file" in verdict.reason
        search = ToolCall("file.search", {}, "c", ("workspace",), sifted=True)
        assert gate.conceals(search, "workspace/secrets/key")
        assert not gate.conceals(search, "workspace/src/a.py")
        assert side.audit.entries[-1][1]["rule"] == "not-for-them", "the owner reads which rule it was"


async def test_a_hidden_tool_is_one_that_is_not_there(tmp_path: Path) -> None:
    async with desk(tmp_path, [{**HIDE, "action": "tool.call", "resource": "mcp.box.*"}]) as side:
        verdict = await side.gate().ask(ToolCall("mcp.box.open", {}, "c"))
        assert (verdict.hidden, verdict.reason, verdict.rule) == (True, "there is no such tool", "")
        assert side.gatekeeper.hides(Subject("agent", "coder"), Action.TOOL_CALL, "mcp.box.open")

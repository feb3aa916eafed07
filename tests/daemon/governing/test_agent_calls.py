"""Which tools an agent is told of: those of which some call could be allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.daemon.governing.agent_calls import AgentCalls
from sublet.protocol.canonical import JsonValue
from support.approvals import desk

pytestmark = pytest.mark.anyio


async def test_an_agent_is_told_of_what_some_rule_could_allow_it(tmp_path: Path) -> None:
    rules: list[dict[str, JsonValue]] = [
        {"id": "reviewers", "effect": "deny", "action": "tool.call", "subject": {"role": "reviewer"}},
        {"id": "ask", "effect": "approval", "action": "tool.call", "resource": "shell.exec"},
        {"id": "never", "effect": "deny", "action": "tool.call", "resource": "file.delete"},
    ]
    async with desk(tmp_path, rules) as side:
        calls = AgentCalls(side.gatekeeper, lambda agent: "reviewer" if agent == "rita" else "executor")
        assert calls.could_call("coder", "file.read")
        assert calls.could_call("coder", "shell.exec"), "a person may approve it"
        assert not calls.could_call("coder", "file.delete")
        assert not calls.could_call("rita", "file.read"), "by its role"
        assert side.audit.entries == []

"""Lists of tools in ``agent.json`` as rules: what they mean, and which of them could never mean anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sublet.policy.agent_rules import AgentTools, agent_rules
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.errors import LocalCode, SubletError

EXECUTOR = Subject("agent", "executor-1", role="executor")


def outcome(tools: AgentTools, tool: str, subject: Subject = EXECUTOR) -> str:
    engine = Policy(Protected(Path("/nowhere")), agent_rules=agent_rules(tools))
    return engine.decide(subject, Action.TOOL_CALL, tool_resource(tool, {}, access_mode="rw")).outcome


SPEC = AgentTools(
    "executor-1",
    ["shell.exec", "capability.bd"],
    ["file.delete"],
    ["shell.exec"],
    ["read_file", "write_file"],
    ["network"],
    "default",
)
"""The example of SuperAgent 7.3."""


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("shell.exec", "needs_grant"),
        ("capability.bd", "allow"),
        ("capability.other", "deny"),
        ("file.read", "allow"),
        ("file.write", "allow"),
        ("file.delete", "deny"),
        ("file.edit", "deny"),
        ("network.fetch", "deny"),
        ("network", "deny"),
        ("mcp.x.y", "deny"),
    ],
)
def test_the_example_of_the_spec(tool: str, expected: str) -> None:
    assert outcome(SPEC, tool) == expected


def test_a_listed_capability_may_be_looked_at_and_run() -> None:
    engine = Policy(Protected(Path("/nowhere")), agent_rules=agent_rules(SPEC))
    for action in (Action.CAPABILITY_READ, Action.CAPABILITY_RUN):
        assert engine.decide(EXECUTOR, action, Resource("bd")).allowed
        assert not engine.decide(EXECUTOR, action, Resource("other")).allowed


@pytest.mark.parametrize(
    ("mode", "edit", "shell", "network"),
    [
        (None, "allow", "allow", "deny"),
        ("default", "allow", "allow", "deny"),
        ("autoEdit", "allow", "needs_grant", "needs_grant"),
        ("plan", "deny", "deny", "deny"),
    ],
)
def test_modes_of_approval(mode: Any, edit: str, shell: str, network: str) -> None:
    tools = AgentTools("executor-1", approval_mode=mode)
    found = [outcome(tools, tool) for tool in ("file.edit", "shell.exec", "network.fetch")]
    assert found == [edit, shell, network]
    assert outcome(tools, "file.read") == "allow"
    assert outcome(tools, "shell.exec", Subject("agent", "other")) == "allow"


@pytest.mark.parametrize(
    ("tools", "place"),
    [
        (AgentTools("a", ["file.write"], ["file.*"]), "tools.whitelist.file.write never matches"),
        (AgentTools("a", ["read_file"], disallowed=["file.read"]), "tools.whitelist.read_file never matches"),
        (
            AgentTools("a", authorization_required=["bash"], blacklist=["shell.exec"]),
            "Required.bash never",
        ),
        (AgentTools("a", ["file.read"], authorization_required=["shell.exec"]), "nobody could ever approve it"),
        (AgentTools("a", ["file.[rw]ead"]), "tools.whitelist"),
        (AgentTools("a", blacklist=["\x07"]), "tools.blacklist"),
    ],
)
def test_an_entry_that_could_never_do_anything_is_refused(tools: AgentTools, place: str) -> None:
    with pytest.raises(SubletError, match="agent a: ") as no:
        agent_rules(tools)
    assert no.value.code is LocalCode.INVALID_ARGUMENT
    assert place in no.value.message

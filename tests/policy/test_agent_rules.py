"""Lists of tools in ``agent.json`` as rules: what they mean, and which of them could never mean anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sublet.policy.agent_rules import AgentTools, agent_rules
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.rules import Rule
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


def rule(place: str, effect: Any, resource: str, *actions: Action, spares: frozenset[str] = frozenset()) -> Rule:
    return Rule(
        f"agent.json.a.{place}", effect, "agent", frozenset({"agent"}), frozenset(actions or {Action.TOOL_CALL}),
        name="a", resource=resource, spares=spares,
    )  # fmt: skip


LOOKING = {"file.read", "file.list", "file.search", "sublet.ask.human"} | {
    f"sublet.{name}" for name in ("delegate.output", "directory", "watch")
}
CHANGING = {"file.write", "file.edit", "file.move", "file.delete"}


def test_each_entry_becomes_a_rule_that_names_its_place() -> None:
    lists = AgentTools("a", ["Bash ", "Bash", "capability.b_d"], ["Network"], ["shell.*"], ["mcp.x"], ["file.delete"])
    capability = (Action.CAPABILITY_READ, Action.CAPABILITY_RUN)
    made = (
        rule("tools.blacklist.Network", "deny", "Network"),
        rule("tools.blacklist.Network.*", "deny", "Network.*"),
        rule("governance.disallowedTools.file.delete", "deny", "file.delete"),
        rule("tools.authorizationRequired.shell.*", "approval", "shell.*"),
        rule("tools.whitelist.Bash", "allow", "Bash"),
        rule("tools.whitelist.capability.b_d", "allow", "capability.b_d"),
        rule("tools.whitelist.capability.b_d.run", "allow", "b_d", *capability),
        rule("governance.allowedTools.mcp.x", "allow", "mcp.x"),
    )
    assert agent_rules(lists) == made
    plan = rule("governance.approvalMode.plan", "deny", "*", spares=frozenset(LOOKING))
    edit = rule("governance.approvalMode.autoEdit", "approval", "*", spares=frozenset(LOOKING | CHANGING))
    assert agent_rules(replace(lists, approval_mode="plan")) == (*made, plan)
    assert agent_rules(replace(lists, approval_mode="autoEdit")) == (*made, edit)
    assert agent_rules(replace(lists, approval_mode="default")) == made


@pytest.mark.parametrize(
    ("name", "effect", "capability"),
    [
        ("capability.my-cap", "allow", "my-cap"),
        ("Capability__my.cap", "allow", "my.cap"),
        ("/capability.bd", "deny", "bd"),
        ("Xcapability.bd", "deny", None),
        ("capability.*", "deny", "*"),
        ("c\u0430pability.bd", "deny", "bd"),
        ("c\u0430pability.bd", "allow", None),
        ("mcp.capability.bd", "deny", None),
    ],
)
def test_which_capability_an_entry_names(name: str, effect: str, capability: str | None) -> None:
    tools = AgentTools("a", blacklist=[name]) if effect == "deny" else AgentTools("a", [name])
    found = [one.resource for one in agent_rules(tools) if Action.CAPABILITY_RUN in one.actions]
    assert found == ([] if capability is None else [capability])


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        (
            AgentTools("a", ["file.re\u0430d"], ["cat"]),
            "tools.whitelist.file.re\u0430d never matches, as agent.json.a.tools.blacklist.cat denies all of it",
        ),
        (
            AgentTools("a", ["cat"], disallowed=["file.re\u0430d"]),
            "tools.whitelist.cat never matches, as agent.json.a.governance.disallowedTools.file.re\u0430d "
            "denies all of it",
        ),
        (
            AgentTools("a", ["file.read"], authorization_required=["bash"]),
            "tools.authorizationRequired.bash is on no list of what this agent may call, "
            "so nobody could ever approve it",
        ),
    ],
)
def test_a_refused_entry_is_named_with_what_is_wrong_about_it(tools: AgentTools, said: str) -> None:
    with pytest.raises(SubletError) as no:
        agent_rules(tools)
    assert no.value.message == f"agent a: {said}"


def test_a_list_may_want_approval_for_more_or_for_less_than_another_allows() -> None:
    for allowed, approved in (("file.read", "file.*"), ("file.*", "file.read"), ("file.read", "file.read")):
        [approval, allow] = agent_rules(AgentTools("a", [allowed], authorization_required=[approved]))
        assert (approval.effect, allow.effect) == ("approval", "allow")

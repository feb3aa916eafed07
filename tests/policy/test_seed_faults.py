"""What the only other implementation of this design got wrong with layers, lists, names and tokens, each set right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sublet.policy.agent_rules import AgentTools, agent_rules
from sublet.policy.config import parse
from sublet.policy.decision import Action, Decision, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.rules import Rule
from sublet.policy.tool_calls import tool_resource

NOWHERE = Protected(Path("/nowhere"))
WORKER = Subject("agent", "worker", role="reviewer")
OTHER = Subject("agent", "other", role="reviewer")


def policy(document: dict[str, Any] | None = None, *tools: AgentTools) -> Policy:
    rules: list[Rule] = [rule for one in tools for rule in agent_rules(one)]
    return Policy(NOWHERE, parse({"version": 1, **(document or {})}), agent_rules=rules)


def call(engine: Policy, tool: str, subject: Subject = WORKER, **more: Any) -> Decision:
    return engine.decide(subject, Action.TOOL_CALL, tool_resource(tool, {}, access_mode="rw"), **more)


DENY_SHELL = {"id": "no-shell", "effect": "deny", "action": "tool.call", "resource": "shell.exec"}


def test_an_agents_whitelist_does_not_erase_what_its_role_denies() -> None:
    """There, a blacklist of the agent replaced the role's, and the whitelist let the denied tool run."""
    engine = policy({"role": {"reviewer": [DENY_SHELL]}}, AgentTools("worker", ["shell.exec"], ["x.y"]))
    decision = call(engine, "shell.exec")
    assert (decision.outcome, decision.layer, decision.rule) == ("deny", "role", "no-shell")


@pytest.mark.parametrize("layer", ["global", "role", "agent"])
def test_a_deny_stands_whatever_the_layer_of_the_allow(layer: str) -> None:
    """There, deny beat allow inside one agent's lists only."""
    where: dict[str, dict[str, Any]] = {
        "global": {"global": [DENY_SHELL]},
        "role": {"role": {"agent": [DENY_SHELL]}},
        "agent": {"agent": {"worker": [DENY_SHELL]}},
    }
    engine = policy(where[layer], AgentTools("worker", ["shell.*"]))
    assert call(engine, "shell.exec").outcome == "deny"
    assert call(engine, "shell.exec", granted=True).outcome == "deny"


def test_there_is_a_layer_for_one_request_and_it_only_narrows() -> None:
    """There, it was absent."""
    agents = frozenset({"agent"})
    calls = frozenset({Action.TOOL_CALL})
    narrow = [Rule("only-reading", "allow", "request", agents, calls, resource="file.read")]  # type: ignore[arg-type]
    wide = [Rule("all", "allow", "request", agents, calls)]  # type: ignore[arg-type]
    engine = policy({"global": [DENY_SHELL]})
    assert call(engine, "file.read", request=narrow).outcome == "allow"
    assert call(engine, "file.write", request=narrow).outcome == "deny"
    assert call(engine, "shell.exec", request=wide).outcome == "deny"
    assert call(engine, "network.fetch", request=wide).outcome == "deny"


def test_a_role_that_nobody_has_rules_for_gains_nothing() -> None:
    """There, an unknown role was silently ignored; here it has what every agent has, and no more."""
    engine = policy({"role": {"reviewer": [DENY_SHELL]}})
    stranger = Subject("agent", "worker", role="owner")
    assert call(engine, "file.read", stranger).outcome == "allow"
    assert call(engine, "mcp.github.create_issue", stranger).outcome == "deny"


@pytest.mark.parametrize("spelling", ["shell_exec", "shell-exec", "Shell.Exec", "SHELL__EXEC", "bash", "shell/exec"])
def test_another_name_of_a_denied_tool_is_denied(spelling: str) -> None:
    """There, ``shell_exec`` on the blacklist let ``shell.exec`` run, and the other way round."""
    for listed in ("shell.exec", "shell_exec"):
        engine = policy({}, AgentTools("worker", blacklist=[listed]))
        assert call(engine, spelling).outcome == "deny", (listed, spelling)
        assert call(engine, "shell.exec").outcome == "deny"


@pytest.mark.parametrize(
    "spelling",
    [
        "\u0455hell.exec",
        "sh\u0435ll.exec",
        "\uff53\uff48\uff45\uff4c\uff4c.exec",
        "shell\u200b.exec",
        "shell\u2024exec",
        "\u0455\u04bb\u0435\u04cf\u04cf.\u0435\u0445\u0435\u0441",
    ],
)
def test_a_lookalike_of_a_denied_tool_is_denied_and_of_an_allowed_one_not_allowed(spelling: str) -> None:
    denying = policy({"role": {"agent": [{"id": "all", "effect": "allow", "action": "tool.call"}, DENY_SHELL]}})
    assert call(denying, spelling).rule == "no-shell"
    allowing = policy({}, AgentTools("worker", ["shell.exec"]))
    assert call(allowing, "shell.exec").outcome == "allow"
    assert call(allowing, spelling).outcome == "deny"


@pytest.mark.parametrize(
    "qualified", ["mcp__box__shell_exec", "functions.shell.exec", "box:shell.exec", "a.b.shell.exec"]
)
def test_a_qualified_name_of_a_denied_tool_is_denied(qualified: str) -> None:
    engine = policy({"role": {"agent": [{"id": "all", "effect": "allow", "action": "tool.call"}, DENY_SHELL]}})
    assert call(engine, qualified).rule == "no-shell"


def test_what_wants_approval_does_so_for_its_agent_only() -> None:
    """There, it was a flag of the whole process, which hit all agents and was never cleared."""
    engine = policy({}, AgentTools("worker", authorization_required=["shell.exec"]))
    assert call(engine, "shell.exec").outcome == "needs_grant"
    assert call(engine, "shell.exec", OTHER).outcome == "allow"
    engine.use(engine.prepare(()))
    assert call(engine, "shell.exec").outcome == "allow"


def test_permissions_go_with_the_entry_that_gave_them() -> None:
    """There, the configuration of a deleted file went on to hold."""
    engine = policy({}, AgentTools("worker", ["network.fetch"]))
    assert call(engine, "network.fetch").outcome == "allow"
    engine.use(engine.prepare(agent_rules(AgentTools("other", ["network.fetch"]))))
    assert call(engine, "network.fetch").outcome == "deny"
    assert call(engine, "network.fetch", OTHER).outcome == "allow"


def test_no_grant_no_call() -> None:
    """There, a missing token was issued by the runtime itself."""
    engine = policy({}, AgentTools("worker", authorization_required=["shell.exec"]))
    first, second = call(engine, "shell.exec"), call(engine, "shell.exec")
    assert (first.allowed, first.needs_grant) == (second.allowed, second.needs_grant) == (False, True)
    granted = call(engine, "shell.exec", granted=True)
    assert (granted.outcome, granted.layer, granted.rule) == ("allow", "request", "grant")


def test_no_agent_grants_anything_to_itself() -> None:
    """There, the model could call the tool that grants."""

    engine = policy()
    for action in (Action.GRANT_ISSUE, Action.APPROVAL_DECIDE):
        decision = engine.decide(WORKER, action, Resource("worker"), granted=True)
        assert decision.outcome == "deny"


def test_an_agent_that_names_other_arguments_does_not_become_another_subject() -> None:
    """There, the id of the agent was what the request said it was."""
    engine = policy({"agent": {"worker": [DENY_SHELL]}})
    resource = tool_resource("shell.exec", {"agentId": "other", "subject": "human"}, access_mode="rw")
    assert engine.decide(WORKER, Action.TOOL_CALL, resource).rule == "no-shell"


@pytest.mark.parametrize("command", ["rm -fr /", "sudo rm -rf /", "curl x | sh", "dd if=/dev/zero of=/dev/sda"])
def test_what_wants_approval_is_not_told_by_guessing_at_commands(command: str) -> None:
    """There, five regular expressions told what is dangerous, and missed these."""
    engine = policy({}, AgentTools("worker", authorization_required=["shell.exec"]))
    asked = tool_resource("shell.exec", {"command": command}, access_mode="rw")
    assert engine.decide(WORKER, Action.TOOL_CALL, asked).needs_grant


def test_an_empty_list_says_nothing_and_a_full_one_nothing_else() -> None:
    """There, an empty list could not clear another one, and no list meant nothing was allowed."""
    assert call(policy({}, AgentTools("worker")), "file.read").outcome == "allow"
    engine = policy({}, AgentTools("worker", ["file.read"]))
    assert call(engine, "file.read").outcome == "allow"
    assert (call(engine, "file.write").outcome, call(engine, "file.write").layer) == ("deny", "agent")

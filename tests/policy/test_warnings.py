"""Lint tells of each deny that a program gets around, and of names that those who have them say themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.governing.agent_rules import rules_of
from sublet.policy.agent_rules import AgentTools, agent_rules
from sublet.policy.config import parse
from sublet.supervisor.agent_config import load_agents
from sublet.supervisor.gateways.module_file import parse_gateway

EXAMPLES = Path(__file__).parents[2] / "examples"
NO_SHELL = {"id": "no-shell", "effect": "deny", "action": "tool.call", "resource": "shell.*"}


def warned(*rules: dict[str, Any]) -> str:
    named = [{"id": f"r{number}", "effect": "deny", "action": "tool.call", **rule} for number, rule in enumerate(rules)]
    return "\n".join(parse({"version": 1, "global": named}).warnings())


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"resource": "file.delete"}, "does the same by a program"),
        ({"resource": "file.*"}, "does the same by a program"),
        ({"resource": "file.write", "effect": "approval"}, "nobody is asked"),
        ({"resource": "file.delete", "when": {"path": {"within": "src"}}}, "deny file.write at the path"),
        ({"resource": "file.*", "when": {"path": "a", "size_bytes": {"min": 5}}}, "only a path holds"),
        ({"resource": "shell.exec", "when": {"args.command": {"like": "rm *"}}}, "another spelling"),
        ({"resource": "*", "when": {"path": {"within": "src"}}}, "names no path"),
        ({"resource": "file.*", "when": {"path": {"within": ["workspace/secrets"]}}}, "relative to the lent directory"),
        ({"resource": "file.*", "when": {"path": {"like": "workspace/**/.env"}}}, "relative to the lent directory"),
        ({"resource": "sublet.delegate", "subject": {"kind": "mcp", "name": "cursor"}}, "says its name itself"),
        ({"action": "delegation.create", "subject": {"kind": "mcp", "name": "cursor"}}, "says its name itself"),
        ({"action": "delegation.create", "subject": {"kind": "mcp", "name": "X"}}, "says its name itself"),
    ],
)
def test_what_holds_less_than_it_seems_to_is_told(rule: dict[str, Any], said: str) -> None:
    found = warned(rule)
    assert said in found
    assert found.startswith("global[0]: ")


@pytest.mark.parametrize(
    "rules",
    [
        [{"resource": "file.*", "when": {"path": {"within": "secrets"}}}],
        [{"resource": "file.read", "when": {"path": {"like": "**/.env"}, "peer": "bob"}}],
        [{"resource": "file.*", "subject": {"kind": "mcp"}}],
        [{"resource": "network.*"}],
        [{"resource": "mcp.*"}],
        [{"resource": "shell.exec"}],
        [{"resource": "file.delete"}, {k: v for k, v in NO_SHELL.items() if k != "id"}],
        [{"action": "delegation.create", "subject": {"kind": "mcp"}}],
        [{"action": "delegation.create", "resource": "bob"}],
    ],
)
def test_what_holds_is_not_told_of(rules: list[dict[str, Any]]) -> None:
    assert warned(*rules) == ""


def test_the_lists_of_an_agent_are_told_of_as_well() -> None:
    lists = agent_rules(AgentTools("worker", blacklist=["file.delete"]))
    assert "agent.json.worker.tools.blacklist.file.delete" in "\n".join(parse({"version": 1}).warnings(lists))
    without = agent_rules(AgentTools("worker", blacklist=["file.delete", "shell.exec"]))
    assert parse({"version": 1}).warnings(without) == []


@pytest.mark.parametrize("file", sorted(EXAMPLES.rglob("*.json")), ids=lambda path: path.parent.name + "/" + path.name)
def test_no_example_seems_to_hold_more_than_it_does(file: Path) -> None:
    if file.name == "agent.json":
        assert parse({"version": 1}).warnings(rules_of(load_agents(file))) == []
    elif file.name == "module.json":
        assert parse_gateway(file.read_bytes(), file.parent.name).id == file.parent.name
    else:
        named = [one for one in parse(json.loads(file.read_text())).warnings() if "says its name itself" not in one]
        assert named == []


def test_a_deny_of_the_shell_for_some_agents_leaves_it_to_the_others() -> None:
    deny = {"resource": "file.delete"}
    for subject in ({"kind": "agent", "name": "x"}, {"kind": "agent", "role": "x"}):
        assert "does the same by a program" in warned(deny, {"resource": "shell.*", "subject": subject})
        assert warned({**deny, "subject": subject}, {"resource": "shell.*", "subject": subject}) == ""

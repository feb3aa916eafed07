"""Which rule is found: by names and roles, exactly or loosely, by paths, by all names of a tool, and by layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sublet.policy.decider import decide_by_rules
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.limits import Limits
from sublet.policy.names import MAX_REMEMBERED_CHARS
from sublet.policy.rules import Rule
from sublet.policy.table import RuleTable, question, resource_pattern

CODER = Subject("agent", "Coder", role="Writer")
CALL = Rule("r", "deny", "global", frozenset({"agent"}), frozenset({Action.TOOL_CALL, Action.AGENT_ASK}))
REVEAL = Rule("r", "deny", "global", frozenset({"human"}), frozenset({Action.WORKSPACE_REVEAL}))


def by(*rules: Rule, subject: Subject = CODER, action: Action = Action.TOOL_CALL, resource: str = "mcp.x") -> str:
    found = decide_by_rules(RuleTable(rules), Limits(), subject, action, Resource(resource), now=0.0)
    return f"{found.layer}.{found.rule}"


def named(rule: Rule, *changes: dict[str, Any]) -> list[Rule]:
    return [replace(rule, id=f"r{number}", **change) for number, change in enumerate(changes)]


@pytest.mark.parametrize(
    ("change", "denied", "allowed"),
    [
        ({}, True, True),
        ({"name": "CODER"}, True, True),
        ({"name": "cod*"}, True, True),
        ({"name": "c\u043eder"}, True, False),
        ({"name": "other"}, False, False),
        ({"role": "writer"}, True, True),
        ({"role": "writ\u0435r"}, True, False),
        ({"role": "reader"}, False, False),
        ({"resource": "MCP.X"}, True, True),
        ({"resource": "mcp.\u0445"}, True, False),
        ({"resource": "x"}, False, False),
        ({"resource": "mcp.y"}, False, False),
        ({"kinds": frozenset({"mcp"})}, False, False),
        ({"actions": frozenset({Action.AGENT_ASK})}, False, False),
    ],
)
def test_what_denies_is_found_loosely_and_what_allows_exactly(
    change: dict[str, Any], denied: bool, allowed: bool
) -> None:
    assert by(replace(CALL, **change)) == ("global.r" if denied else "global.unmatched")
    allow = replace(CALL, effect="allow", layer="role", **change)
    speaks = "resource" in change
    assert by(allow) == ("role.r" if allowed else "role.unmatched" if speaks else "global.unmatched")


@pytest.mark.parametrize(
    ("rule", "asked", "denied", "allowed"),
    [
        ("/Srv/A", "/Srv/A", True, True),
        ("/Srv/A", "/srv/a", False, False),
        ("/srv/*", "/srv/a", True, True),
        ("/srv/*", "/srv/a/b", False, False),
        ("/srv/a", "/srv/../a", True, False),
        ("*/Secret/*", "/a/Secret/b", True, True),
        ("*/Secret/*", "/a/secret/b", False, False),
        ("*/Secret/*", "a/secret/b", True, True),
        (".ENV", ".env", True, True),
        ("x", "/x", False, False),
    ],
)
def test_paths_are_compared_as_they_are_written(rule: str, asked: str, denied: bool, allowed: bool) -> None:
    human = Subject("human")
    more: Any = {"subject": human, "action": Action.WORKSPACE_REVEAL, "resource": asked}
    assert by(replace(REVEAL, resource=rule), **more) == ("global.r" if denied else "global.unmatched")
    found = by(replace(REVEAL, resource=rule, effect="allow"), **more)
    assert found == ("global.r" if allowed else "global.unmatched")


@pytest.mark.parametrize(
    ("rule", "asked", "denied", "allowed"),
    [
        ("shell.exec", "Bash", True, True),
        ("bash", "mcp__box__shell_exec", True, False),
        ("my_tool", "acp.my_tool", True, True),
        ("acp.my_tool", "acp.my_tool", True, True),
        ("acp.*", "acp.my_tool", True, True),
        ("acp.other", "acp.my_tool", False, False),
        ("box.*", "mcp__box__put", True, False),
    ],
)
def test_a_tool_is_found_under_its_names(rule: str, asked: str, denied: bool, allowed: bool) -> None:
    assert by(replace(CALL, resource=rule), resource=asked) == ("global.r" if denied else "global.unmatched")
    found = by(replace(CALL, resource=rule, effect="allow"), resource=asked)
    assert found == ("global.r" if allowed else "global.unmatched")


def test_a_tool_is_a_tool_where_it_is_called_alone() -> None:
    ask = replace(CALL, resource="bash")
    assert by(ask, action=Action.AGENT_ASK, resource="shell.exec") == "global.unmatched"
    assert by(ask, action=Action.AGENT_ASK, resource="bash") == "global.r"
    assert by(ask, resource="shell.exec") == "global.r"


@pytest.mark.parametrize("effect", ["deny", "approval", "allow"])
def test_the_first_rule_of_a_layer_counts(effect: Any) -> None:
    rule = replace(CALL, effect=effect)
    for resources in (("mcp.x", "mcp.*", "*"), ("*", "mcp.x", "mcp.*"), ("mcp.*", "*", "mcp.x"), ("mcp.?", "mcp.x")):
        assert by(*named(rule, *({"resource": one} for one in resources))) == "global.r0"
    fitting = named(rule, {"name": "other"}, {"role": "other"}, {"resource": "y"}, {"resource": "mcp.x"}, {})
    assert by(*fitting) == "global.r3"


@pytest.mark.parametrize(("effect", "found"), [("deny", "global.r2"), ("approval", "global.r2"), ("allow", "agent.r0")])
def test_layers_count_from_low_to_high_for_denies_and_from_high_to_low_for_allows(effect: Any, found: str) -> None:
    rules = named(CALL, {"layer": "agent"}, {"layer": "role"}, {"layer": "global"})
    assert by(*(replace(rule, effect=effect) for rule in rules)) == found


def test_rules_are_added_to_a_table_that_stays_as_it_is() -> None:
    below = RuleTable(named(CALL, {"resource": "mcp.x"}))
    above = RuleTable([replace(CALL, id="more", resource="mcp.y")], over=below)
    for table, resource, rule in ((below, "mcp.y", "unmatched"), (above, "mcp.y", "more"), (above, "mcp.x", "r0")):
        found = decide_by_rules(table, Limits(), CODER, Action.TOOL_CALL, Resource(resource), now=0.0)
        assert found.rule == rule
    assert above.cell(Action.ROOM_SEND, "agent") == ((), (), ())


@pytest.mark.parametrize("long", ["", "z" * MAX_REMEMBERED_CHARS])
def test_a_question_has_names_in_both_forms(long: str) -> None:
    subject, resource = Subject("agent", f"C\u043e{long}", role="W\u0435"), Resource(f"Acp.M\u0443{long}", {"a": 1})
    asked = question(subject, Action.TOOL_CALL, resource, 7.0)
    assert asked[:3] == (subject, resource, 7.0)
    assert asked[3:7] == (f"c\u043e{long}", f"co{long}", "w\u0435", "we")
    assert asked.resource_name == asked.resource_exact[0]
    assert asked.resource_exact == (f"m\u0443{long}", f"acp.m\u0443{long}")
    assert asked.resource_loose == (f"my{long}", f"acp.my{long}")
    other = question(subject, Action.AGENT_ASK, resource, 7.0)
    assert (other.resource_exact, other.resource_loose) == ((f"acp.m\u0443{long}",), (f"acp.my{long}",))


def test_a_pattern_is_in_the_form_in_which_its_resources_are_compared() -> None:
    told = [
        resource_pattern("B\u0430sh", action, exact=exact)
        for action in (Action.TOOL_CALL, Action.AGENT_ASK)
        for exact in (True, False)
    ]
    assert told == ["b\u0430sh", "shell.exec", "b\u0430sh", "bash"]

"""A rule that can make no difference is told with the one that leaves nothing of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sublet.policy.config import parse
from sublet.policy.decision import Action
from sublet.policy.lint_shadows import Shadows, cells_of
from sublet.policy.rules import Rule

TOOL: dict[str, Any] = {"effect": "deny", "action": "tool.call", "subject": {"kind": "agent"}, "resource": "file.*"}
PYTHON: dict[str, Any] = {"when": {"path": {"like": "*.py"}}}
[BASE] = parse({"version": 1, "global": [{"id": "base", **TOOL}]}).rules
CONDITION = parse({"version": 1, "global": [{"id": "base", **TOOL, **PYTHON}]}).rules[0].when


def rule(rule_id: str, /, **changes: Any) -> Rule:
    return replace(BASE, id=rule_id, **changes)


def shadow_of_last(*rules: Rule) -> str:
    return Shadows([(one.id, one) for one in rules]).of(rules[-1], lambda _: True)


@pytest.mark.parametrize(
    ("wide", "narrow", "shadowed"),
    [
        ({}, {"resource": "file.read"}, True),
        ({}, {}, True),
        ({"resource": "file.read"}, {}, False),
        ({"name": "coder"}, {}, False),
        ({}, {"name": "coder"}, True),
        ({"role": "reviewer"}, {"role": "executor"}, False),
        ({"kinds": frozenset({"mcp"})}, {}, False),
        ({"kinds": frozenset({"agent", "mcp"})}, {}, True),
        ({"actions": frozenset({Action.AGENT_ASK})}, {}, False),
        ({"when": CONDITION}, {}, False),
        ({}, {"when": CONDITION}, True),
    ],
)
def test_a_rule_is_shadowed_by_an_earlier_one_that_holds_for_all_that_it_names(
    wide: dict[str, Any], narrow: dict[str, Any], shadowed: bool
) -> None:
    assert shadow_of_last(rule("wide", **wide), rule("narrow", **narrow)) == ("wide" if shadowed else "")


def test_several_rules_together_leave_nothing_and_the_last_of_them_is_named() -> None:
    agents, hosts = rule("agents"), rule("hosts", kinds=frozenset({"mcp"}))
    assert shadow_of_last(agents, hosts, rule("both", kinds=frozenset({"agent", "mcp"}))) == "hosts"
    assert shadow_of_last(agents, rule("both", kinds=frozenset({"agent", "mcp"}))) == ""


def test_of_what_denies_only_what_comes_before_counts_and_only_what_is_considered() -> None:
    narrow, wide = rule("narrow", resource="file.read"), rule("wide")
    shadows = Shadows([("narrow", narrow), ("wide", wide)])
    assert shadows.of(narrow, lambda _: True) == ""
    assert Shadows([("wide", wide), ("narrow", narrow)]).of(narrow, lambda one: one is narrow) == ""


def test_an_allow_is_replaced_by_one_of_a_higher_layer_for_everybody() -> None:
    allow = rule("allow", effect="allow")
    higher = rule("higher", effect="allow", layer="agent")
    shadows = Shadows([("allow", allow), ("higher", higher)])
    assert shadows.replacing(allow) == "higher"
    assert shadows.replacing(higher) == ""
    named = rule("named", effect="allow", layer="agent", name="coder")
    assert Shadows([("allow", allow), ("named", named)]).replacing(allow) == ""


def test_cells_are_those_in_which_a_kind_may_do_anything_at_all() -> None:
    assert cells_of(BASE) == {(Action.TOOL_CALL, "agent")}
    assert cells_of(rule("peers", kinds=frozenset({"peer"}))) == set(), "no peer calls tools"

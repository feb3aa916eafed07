"""Rules as a document: the same bytes for the same rules in every version, and nothing is read that is not known."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest

from sublet.policy.config import parse
from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.limits import Limits
from sublet.policy.rule_set import RuleSet, rule_set_of
from sublet.policy.rules import Rule
from sublet.policy.table import RuleTable
from sublet.protocol.documents import document, unpacked

FILE = {
    "version": 1,
    "global": [
        {
            "id": "a",
            "effect": "deny",
            "action": ["tool.call"],
            "subject": {"kind": "agent", "name": "x*"},
            "resource": "shell.*",
            "when": {
                "args.command": {"like": "rm *"},
                "path": {"within": ["tmp", "srv"]},
                "args.n": {"min": 1, "max": 3},
                "args.b": True,
                "args.v": {"any_of": [1, True, "x"]},
            },
            "times": {"days": ["mon", "sun"], "from": "08:00", "to": "17:30", "zone": "Europe/Berlin"},
            "hide": True,
            "reason": "r",
            "hint": "h",
        }
    ],
    "role": {"executor": [{"id": "b", "effect": "approval", "action": "tool.call", "times": {"from": "22:00"}}]},
}
NOTHING = {"values": None, "glob": None, "minimum": None, "maximum": None, "scopes": None}
KEPT = {
    "version": 1,
    "rules": [
        {
            "id": "a",
            "effect": "deny",
            "layer": "global",
            "kinds": ["agent"],
            "actions": ["tool.call"],
            "name": "x*",
            "resource": "shell.*",
            "role": "*",
            "reason": "r",
            "hint": "h",
            "hide": True,
            "spares": [],
            "record": False,
            "when": {
                "args.command": {**NOTHING, "glob": "rm *"},
                "path": {**NOTHING, "scopes": ["tmp", "srv"]},
                "args.n": {**NOTHING, "minimum": 1, "maximum": 3},
                "args.b": {**NOTHING, "values": [True]},
                "args.v": {**NOTHING, "values": [1, True, "x"]},
            },
            "times": {"start": 480, "end": 1050, "days": [0, 6], "zone": "Europe/Berlin"},
        },
        {
            "id": "b",
            "effect": "approval",
            "layer": "role",
            "kinds": ["agent"],
            "actions": ["tool.call"],
            "name": "*",
            "resource": "*",
            "role": "executor",
            "reason": "",
            "hint": "",
            "hide": False,
            "spares": [],
            "record": False,
            "when": {},
            "times": {"start": 1320, "end": 1440, "days": [0, 1, 2, 3, 4, 5, 6], "zone": "UTC"},
        },
    ],
    "accessModes": ["ro", "rw"],
}


def test_what_is_kept_of_rules_is_their_fields_and_reads_as_the_same_rules() -> None:
    made = RuleSet(parse(FILE).rules, Limits())
    assert made.document is not None
    assert unpacked(made.document) == KEPT
    assert made.document == document(cast("Any", KEPT)), "bytes, and with them the digest, are part of the format"
    read = rule_set_of(cast("Any", KEPT))
    assert read.rules == made.rules
    assert [type(one) for one in read.rules[0].when["args.v"].values or ()] == [int, bool, str]
    assert read.document == made.document


def changed(*path: str | int, **more: object) -> Any:
    kept: Any = copy.deepcopy(KEPT)
    place = kept
    for step in path:
        place = place[step]
    place.update(more)
    return kept


@pytest.mark.parametrize(
    "kept",
    [
        None,
        [],
        changed(version=2),
        changed(version=None),
        changed(later=1),
        changed(accessModes=["x"]),
        changed("rules", 0, later=1),
        changed("rules", 0, effect="perhaps"),
        changed("rules", 0, actions=["fly"]),
        changed("rules", 0, kinds=["ghost"]),
        changed("rules", 0, id=None),
        changed("rules", 0, "when", "path", later=1),
        changed("rules", 0, "when", "path", scopes="tmp"),
        changed("rules", 0, "times", later=1),
        changed("rules", 0, "times", zone="Mars/Olympus"),
        changed("rules", 0, "times", zone=3),
        changed("rules", 0, times={"start": "x", "end": 0, "days": [], "zone": "UTC"}),
    ],
)
def test_a_document_that_says_what_is_not_known_is_no_rules(kept: Any) -> None:
    """A condition that is left out would widen what an allow allows."""
    with pytest.raises(ValueError, match="no rules that this version knows"):
        rule_set_of(kept)


def test_which_arguments_any_rule_compares() -> None:
    made = RuleSet(parse(FILE).rules, Limits())
    found = made.compared_arguments(Action.TOOL_CALL, "agent")
    assert found == {"args.command", "args.n", "args.b", "args.v"}
    assert made.compared_arguments(Action.TOOL_CALL, "agent") is found
    assert made.compared_arguments(Action.TOOL_CALL, "mcp") == frozenset()
    assert made.compared_arguments(Action.AGENT_ASK, "agent") == frozenset()


def test_rules_decide_with_the_limits_and_the_table_that_they_were_given() -> None:
    rules = parse(FILE).rules
    table = RuleTable(())
    assert RuleSet(rules, Limits(), table).table is table
    kept: Any = {**KEPT, "accessModes": ["ro"]}
    read = rule_set_of(kept)
    assert read.limits == Limits(access_modes=("ro",))
    agent, asked = Subject("agent", "y"), Resource("mcp.x", {"access_mode": "rw"})
    allow = Rule("z", "allow", "agent", frozenset({"agent"}), frozenset({Action.TOOL_CALL}))
    night, noon = 23 * 3600.0, 12 * 3600.0
    for at, granted, request, rule in (
        (night, False, (), "unmatched"),
        (noon, False, (), "unmatched"),
        (night, True, (), "limits.access_modes"),
    ):
        found = read.decide(agent, Action.TOOL_CALL, asked, request, granted=granted, now=at)
        assert found.rule == rule, (at, granted)
    wide = RuleSet((*rules, allow), Limits())
    deny = Rule("only", "deny", "request", frozenset({"agent"}), frozenset({Action.TOOL_CALL}))
    assert wide.decide(agent, Action.TOOL_CALL, asked, now=noon).rule == "z"
    assert wide.decide(agent, Action.TOOL_CALL, asked, (deny,), now=noon).rule == "only"
    writer = Subject("agent", "y", role="executor")
    assert [wide.decide(writer, Action.TOOL_CALL, asked, now=at).rule for at in (noon, night)] == ["z", "b"]

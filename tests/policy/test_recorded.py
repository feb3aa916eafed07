"""A decision as events hold it: what is kept of it, what is not, and what comes of making it again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sublet.policy.config import parse
from sublet.policy.decision import Action, Decision, Resource, Subject
from sublet.policy.limits import Limits
from sublet.policy.recorded import (
    MAX_ATTRIBUTES,
    MAX_VALUE_CHARS,
    MAX_VALUES,
    NotDecidable,
    Record,
    RecordedDecision,
    decide_again,
    recorded_in,
)
from sublet.policy.request_rules import Narrowing
from sublet.policy.rule_set import RuleSet

AGENT = Subject("agent", "coder", role="writer")
RULES = RuleSet(
    parse(
        {
            "version": 1,
            "global": [
                {"id": "no", "effect": "deny", "action": "tool.call", "when": {"args.x": "evil"}},
                {
                    "id": "yes",
                    "effect": "allow",
                    "action": "tool.call",
                    "resource": "mcp.*",
                    "subject": {"kind": "agent"},
                },
                {"id": "ask", "effect": "approval", "action": "tool.call", "resource": "net.*"},
            ],
        }
    ).rules,
    Limits(),
)


def record(attributes: dict[str, Any] | None = None, name: str = "mcp.a", **more: Any) -> Record:
    resource = Resource(name, attributes or {})
    decision = RULES.decide(AGENT, Action.TOOL_CALL, resource, now=0.0)
    return replace(Record(RULES, AGENT, Action.TOOL_CALL, resource, False, 7.5, decision), **more)


def again(one: Record, arguments: Any = None, rules: RuleSet = RULES) -> Decision | NotDecidable:
    found = recorded_in({"decided": one.data()})
    assert found is not None
    return decide_again(found, rules, arguments)


def test_what_an_event_holds_of_a_decision() -> None:
    assert RULES.document is not None
    attributes = {"args.x": "good", "args.y": 1, "args.z": 2, "path": ("a", "b"), "access_mode": "ro"}
    one = record(attributes, narrowing=Narrowing(("file.*",), ("mcp.*",)))
    assert one.data() == {
        "kind": "agent", "name": "coder", "role": "writer", "action": "tool.call", "resource": "mcp.a",
        "granted": False, "at": 7.5, "rules": RULES.document.digest, "outcome": "allow", "layer": "global",
        "rule": "yes", "leftOut": 2, "missing": [],
        "attributes": {"args.x": "good", "path": ["a", "b"], "access_mode": "ro"},
        "request": {"deny": ["file.*"], "only": ["mcp.*"]},
    }  # fmt: skip
    assert one.documents == (RULES.document,)
    assert "request" not in record().data()
    read = recorded_in({"decided": one.data()})
    assert isinstance(read, RecordedDecision)
    assert read.said == {"decision": "allow", "layer": "global", "rule": "yes"}


@pytest.mark.parametrize(
    ("attributes", "missing"),
    [
        ({"path": "a" * MAX_VALUE_CHARS}, []),
        ({"path": "a" * (MAX_VALUE_CHARS + 1)}, ["path"]),
        ({"path": ("a",) * MAX_VALUES}, []),
        ({"path": ("a",) * (MAX_VALUES + 1)}, ["path"]),
        ({"path": ("a", "a" * (MAX_VALUE_CHARS + 1))}, ["path"]),
        ({"path": "\ud800"}, ["path"]),
        ({"\ud800": "a"}, [""]),
        ({"a" * (MAX_VALUE_CHARS + 1): 1}, [f"{'a' * 60}… [{MAX_VALUE_CHARS + 1 - 60} more characters cut]"]),
        ({f"a{number}": number for number in range(MAX_ATTRIBUTES)}, []),
        ({f"a{number}": number for number in range(MAX_ATTRIBUTES + 1)}, [f"a{MAX_ATTRIBUTES}"]),
    ],
)
def test_what_is_too_large_to_be_recorded_is_named(attributes: dict[str, Any], missing: list[str]) -> None:
    data: Any = record(attributes).data()
    assert data["missing"] == missing
    assert len(data["attributes"]) == len(attributes) - len(missing)
    if missing and missing != [""]:
        assert again(record(attributes)) == NotDecidable(f"not recorded in full: {missing[0]}")


def test_a_name_that_is_too_long_is_cut_and_named() -> None:
    data = record(name="x" * (MAX_VALUE_CHARS + 1)).data()
    assert data["missing"] == ["resource"]
    assert data["resource"] == f"{'x' * 460}… [{MAX_VALUE_CHARS + 1 - 460} more characters cut]"
    assert record(name="x" * MAX_VALUE_CHARS).data()["resource"] == "x" * MAX_VALUE_CHARS


def test_rules_that_no_document_holds_are_not_named() -> None:
    rules = RuleSet(RULES.rules, Limits())
    rules.__dict__["document"] = None
    one = record(rules=rules)
    assert (one.data()["rules"], one.documents) == (None, ())


def test_a_decision_is_made_again_from_what_was_recorded() -> None:
    for attributes, rule in (({"args.x": "good"}, "yes"), ({"args.x": "evil"}, "no"), ({"args.x": ("evil",)}, "no")):
        found = again(record(attributes))
        assert isinstance(found, Decision)
        assert found.rule == rule
    for granted, outcome in ((True, "allow"), (False, "needs_grant")):
        found = again(record({"args.x": "good"}, "net.x", granted=granted))
        assert isinstance(found, Decision)
        assert found.outcome == outcome
    narrowed = [
        again(record({"args.x": "a"}, narrowing=Narrowing(*told))) for told in ((("mcp.*",), ()), ((), ("x.y",)))
    ]
    assert [one.rule for one in narrowed if isinstance(one, Decision)] == ["request.deny.mcp.*", "unmatched"]


def test_what_was_left_out_is_asked_for_where_rules_compare_it() -> None:
    one = record({"args.y": 1})
    assert [rule.id for rule in RULES.rules] == ["no", "yes", "ask"]
    unknown = NotDecidable("these rules compare arguments that are not recorded: args.x")
    assert again(one) == unknown
    for arguments, rule in (({"args.x": "evil"}, "no"), ({"args.x": "good"}, "yes"), ({}, "no")):
        found = again(one, arguments)
        assert isinstance(found, Decision)
        assert found.rule == rule
    lend = record(action=Action.WORKSPACE_LEND)
    assert again(lend) == NotDecidable("it looked at the disk")


def test_what_was_recorded_counts_before_what_the_event_shows_otherwise() -> None:
    found = again(record({"args.x": "evil", "args.y": 1}), {"args.x": "good"})
    assert isinstance(found, Decision)
    assert found.rule == "no"


def test_many_missing_things_are_named_up_to_a_few() -> None:
    names = {f"a{number}": "x" * (MAX_VALUE_CHARS + 1) for number in range(7)}
    assert again(record(names)) == NotDecidable("not recorded in full: a0, a1, a2, a3, a4")


@pytest.mark.parametrize("data", [{}, {"other": 1}])
def test_what_holds_no_decision(data: Any) -> None:
    assert recorded_in(data) is None


@pytest.mark.parametrize(
    "change", [{"later": 1}, {"at": float("nan")}, {"kind": "ghost"}, {"granted": 1.5}, {"attributes": {"a": [1]}}]
)
def test_what_can_not_be_read(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="can't be read"):
        recorded_in({"decided": {**record().data(), **change}})


def test_a_decision_is_made_again_for_the_same_subject_at_the_same_time() -> None:
    hour = {"times": {"from": "00:00", "to": "01:00"}}
    tool = {"effect": "deny", "action": "tool.call"}
    rules = RuleSet(
        parse(
            {
                "version": 1,
                "global": [{"id": "early", **tool, **hour}],
                "role": {"writer": [{"id": "writers", **tool, "resource": "mcp.w"}]},
                "agent": {"coder": [{"id": "coders", **tool, "resource": "mcp.c"}]},
            }
        ).rules,
        Limits(),
    )
    told: list[str] = []
    for name, at in (("mcp.w", 0.0), ("mcp.w", 3_600.0), ("mcp.c", 3_600.0), ("mcp.a", 3_600.0)):
        found = again(record(name=name, at=at), rules=rules)
        assert isinstance(found, Decision)
        told.append(found.rule)
    assert told == ["early", "writers", "coders", "unmatched"]


def test_what_is_recorded_is_plain_json() -> None:
    data = record({"path": ("a",)}).data()
    assert {type(value) for value in data.values()} == {str, bool, float, int, dict, list}
    assert type(data["action"]) is str

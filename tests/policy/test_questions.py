"""What rules, their tests and questions to them say is what there can be, or it is refused with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sublet.daemon.api.policy import ExplainRequest
from sublet.daemon.governing.explain import explained
from sublet.policy.attributes import Attribute, attribute_of
from sublet.policy.config import BadPolicy, parse
from sublet.policy.decision import Action
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.sizes import size_written
from sublet.policy.subjects import checked, subject_named
from sublet.protocol.errors import LocalCode, SubletError

LIMIT = {
    "id": "small", "effect": "allow", "action": "tool.call", "resource": "mcp.box.put", "subject": {"kind": "agent"},
    "when": {"size_bytes": {"max": "1 MiB"}},
}  # fmt: skip


def policy(tmp_path: Any, **document: Any) -> Policy:
    return Policy(Protected(tmp_path, ()), parse({"version": 1, **document}))


def refused(**document: Any) -> list[str]:
    with pytest.raises(BadPolicy) as bad:
        parse({"version": 1, **document})
    return list(bad.value.problems)


@pytest.mark.parametrize(
    ("rule", "why"),
    [
        (
            {"action": "module.dispatch", "when": {"event": "nosuch_event"}},
            "never holds: it is one of approval_decided",
        ),
        ({"action": "module.dispatch", "when": {"event": {"like": "nosuch*"}}}, "never holds: it is one of"),
        ({"action": "workspace.lend", "resource": "/a", "when": {"path": "/b"}}, "the path is the rule's resource, /a"),
        ({"effect": "allow", "action": "tool.call", "resource": "mcp.a.b", "hint": "Do."}, "is allowed is shown none"),
    ],
)
def test_a_part_of_a_rule_that_says_nothing_is_refused(rule: Mapping[str, Any], why: str) -> None:
    problems = refused(**{"global": [{"id": "r", "effect": "deny", **rule}]})
    assert any(why in problem for problem in problems), problems


@pytest.mark.parametrize(
    "rule",
    [
        {"action": "module.dispatch", "when": {"event": "policy_rejected"}},
        {"action": "module.dispatch", "when": {"event": {"any_of": ["dispatch_result", "later"]}}},
        {"action": "workspace.lend", "resource": "/a", "when": {"path": {"within": ["/a"]}}},
        {"action": "workspace.lend", "resource": "/a/*", "when": {"path": "/a/b"}},
        {"action": "tool.call", "hint": "Ask first."},
    ],
)
def test_what_can_hold_is_taken(rule: Mapping[str, Any]) -> None:
    assert len(parse({"version": 1, "global": [{"id": "r", "effect": "deny", **rule}]}).rules) == 1


@pytest.mark.parametrize("name", ["mcp:claude", "agent:coder", "human:", "peer:bob"])
def test_a_name_of_the_agent_layer_stands_without_its_kind(name: str) -> None:
    """``agent.NAME`` is the name alone; with a kind before it, it would be the name of nobody."""
    problems = refused(agent={name: [{"id": "r", "effect": "deny", "action": "tool.call"}]})
    assert any("a name stands without its kind" in problem for problem in problems), problems
    rule = {"id": "r", "effect": "deny", "action": "module.dispatch"}
    assert len(parse({"version": 1, "agent": {"gateway:chat": [rule]}}).rules) == 1


@pytest.mark.parametrize(
    "subject", [{"kind": "human", "name": "bob"}, {"kind": "peer", "name": "bob", "role": "reviewer"}, "human:bob"]
)
def test_a_subject_of_a_test_is_one_that_there_can_be(subject: Any) -> None:
    test = {"subject": subject, "action": "peer.manage", "resource": "bob", "expect": "deny"}
    assert len(refused(tests=[test])) == 1


def test_a_question_names_a_subject_that_there_can_be(tmp_path: Any) -> None:
    for text, role in (("human:bob", ""), ("peer:bob", "reviewer"), ("mcp:x", "executor")):
        with pytest.raises(SubletError) as wrong:
            checked(subject_named(text, role))
        assert wrong.value.code is LocalCode.INVALID_ARGUMENT
    assert checked(subject_named("coder", "reviewer")).role == "reviewer"
    assert subject_named("human").name == ""


@pytest.mark.parametrize(
    ("size", "outcome"),
    [(1000, "allow"), ("1 MiB", "allow"), ("2 MiB", "deny"), (2 << 20, "deny"), ("1000 kB", "allow")],
)
def test_a_size_is_written_in_a_test_and_a_question_as_in_a_rule(tmp_path: Any, size: Any, outcome: Any) -> None:
    asked = {"action": "tool.call", "resource": "mcp.box.put", "attributes": {"size_bytes": size}}
    test = {"subject": {"kind": "agent", "name": "a"}, **asked, "expect": outcome}
    held = policy(tmp_path, **{"global": [LIMIT]}, tests=[test])
    request = ExplainRequest.model_validate({"subject": "a", **asked})
    assert explained(held, request, lambda _: "").decision == outcome


@pytest.mark.parametrize(
    ("action", "attribute", "value"),
    [
        ("tool.call", "size_bytes", "large"),
        ("tool.call", "size_bytes", True),
        ("tool.call", "access_mode", "rx"),
        ("delegation.create", "ttl_seconds", 0),
        ("delegation.create", "ttl_seconds", "5m"),
        ("delegation.apply", "partial", "yes"),
        ("delegation.apply", "to", "nowhere"),
        ("module.dispatch", "event", "nosuch_event"),
        ("agent.dispatch", "depth", -1),
        ("agent.dispatch", "peer", 3),
    ],
)
def test_a_value_that_no_resource_has_is_refused_in_questions_and_tests(
    tmp_path: Any, action: str, attribute: str, value: Any
) -> None:
    asked = {"action": action, "resource": "x", "attributes": {attribute: value}}
    [problem] = refused(tests=[{"subject": {"kind": "agent", "name": "a"}, **asked, "expect": "deny"}])
    assert f"the attribute {attribute} of {action} is never" in problem
    request = ExplainRequest.model_validate({"subject": "a", **asked})
    with pytest.raises(SubletError, match="is never"):
        explained(policy(tmp_path), request, lambda _: "")


def test_what_a_gate_has_asked_is_asked_again_whatever_it_is(tmp_path: Any) -> None:
    request = ExplainRequest.model_validate(
        {"subject": "a", "action": "tool.call", "resource": "x", "attributes": {"access_mode": "later"}}
    )
    assert explained(policy(tmp_path), request, lambda _: "", recorded=True).decision == "deny"


def test_a_question_narrows_calls_of_tools_alone(tmp_path: Any) -> None:
    asked = {"subject": "human", "action": "delegation.create", "resource": "bob", "deny": ["file.write"]}
    with pytest.raises(SubletError, match="narrows calls of tools"):
        explained(policy(tmp_path), ExplainRequest.model_validate(asked), lambda _: "")


@pytest.mark.parametrize(
    "more",
    [
        {"role": "reviewer"},
        {"attributes": {"path": "a"}},
        {"at": "2026-11-27T10:00:00Z"},
        {"granted": True},
        {"deny": ["file.write"]},
        {"only": ["file.*"]},
    ],
)
def test_an_entry_of_the_log_has_its_own_parts(more: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match="can't go with entry"):
        ExplainRequest.model_validate({"entry": 7, **more})
    assert ExplainRequest.model_validate({"entry": 7, "args": {"command": "ls"}}).entry == 7


def test_an_attribute_tells_which_values_it_never_has() -> None:
    path = attribute_of(Action.TOOL_CALL, "path")
    assert path is not None
    assert path.defect_of(("a", "b")) == ""
    assert path.defect_of(3) == "it is a text"
    assert Attribute("any").defect_of(3) == ""
    assert Attribute("number", minimum=1, maximum=3).defect_of((1, 4)).endswith("at least 1 and at most 3")  # type: ignore[arg-type]


def test_sizes() -> None:
    assert [size_written(text) for text in ("10 MiB", "10kB", "3 B", "10", "10 XB", "MiB")] == [
        10 << 20, 10_000, 3, None, None, None
    ]  # fmt: skip

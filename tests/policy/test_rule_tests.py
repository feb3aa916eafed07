"""Tests that a policy carries, and questions as people write them: what is asked, and what comes of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.limits import Limits
from sublet.policy.rule_tests import RuleTest, asked_resource, run_tests
from sublet.policy.rules import Rule
from sublet.policy.table import RuleTable
from sublet.policy.times import Times
from sublet.protocol.errors import LocalCode, SubletError

AGENT = Subject("agent", "coder")
TEST = RuleTest("tests[0]", AGENT, Action.TOOL_CALL, "mcp.x", {}, {}, "allow", None, 0.0)
AT_NIGHT = Rule(
    "night", "deny", "global", frozenset({"agent"}), frozenset({Action.TOOL_CALL}), times=Times(start=0, end=60)
)
ALWAYS = Rule("always", "allow", "role", frozenset({"agent"}), frozenset({Action.TOOL_CALL}), resource="mcp.*")
TABLE = RuleTable([AT_NIGHT, ALWAYS])


def problem(**changed: Any) -> str:
    test = replace(TEST, **changed)
    [result] = run_tests([test], TABLE, Limits())
    assert result.test is test
    assert result.passed is (result.problem == "")
    return result.problem


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"at": 3_600.0}, ""),
        ({"at": 3_600.0, "rule": "always"}, ""),
        ({}, "expected allow, and it is deny by global rule night"),
        ({"expected": "deny"}, ""),
        ({"expected": "deny", "rule": "night"}, ""),
        ({"expected": "deny", "rule": "x"}, "expected rule x to decide, and it is deny by global rule night"),
        (
            {"at": 3_600.0, "attributes": {"access_mode": "ro"}, "resource": "file.write"},
            "expected allow, and it is deny by role rule unmatched",
        ),
        ({"attributes": {"depth": 1}}, "tool.call has no attribute 'depth'"),
    ],
)
def test_what_comes_of_a_test(changed: dict[str, Any], said: str) -> None:
    assert problem(**changed) == said


def test_a_test_of_no_time_is_asked_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for now, said in ((1_800.0, "expected allow, and it is deny by global rule night"), (3_600.0, "")):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert problem(at=None) == said


def test_what_can_not_be_asked_ends_its_own_test_alone() -> None:
    wrong, right = replace(TEST, attributes={"depth": 1}), replace(TEST, at=3_600.0)
    first, second = run_tests([wrong, right], TABLE, Limits())
    assert (first.passed, second.passed) == (False, True)
    assert (first.decision.outcome, first.decision.layer, first.decision.rule) == ("deny", "global", "unmatched")
    [limited] = run_tests(
        [replace(TEST, at=3_600.0, attributes={"access_mode": "rw"})], TABLE, Limits(access_modes=("ro",))
    )
    assert limited.decision.rule == "limits.access_modes"


@pytest.mark.parametrize(
    ("action", "attributes", "arguments", "message", "hint"),
    [
        (Action.ROOM_SEND, {"x": 1}, {}, "room.send has no attribute 'x'", "It has: size_bytes."),
        (Action.POLICY_READ, {"x": 1}, {}, "policy.read has no attribute 'x'", "It has none."),
        (Action.DELEGATION_APPLY, {"x": 1}, {}, "delegation.apply has no attribute 'x'",
         "It has: allow_mass_deletion, partial, to."),
        (Action.ROOM_SEND, {}, {"x": 1}, "room.send has no arguments", "Give attributes instead."),
        (Action.ROOM_SEND, {"size_bytes": "x"}, {},
         "the attribute size_bytes of room.send is never 'x': it is a number, at least 0",
         "Write a size as a number, or as 10 MiB."),
        (Action.TOOL_CALL, {"access_mode": "x" * 90}, {},
         f"the attribute access_mode of tool.call is never {'x' * 40 + '… [50 more characters cut]'!r}: "
         "it is one of ro, rw", "Ask for what there can be."),
        (Action.TOOL_CALL, {"y" * 90: 1}, {}, f"tool.call has no attribute {'y' * 40 + '… [50 more characters cut]'!r}",
         "It has: access_mode, delegation_id, path, peer, room, size_bytes."),
    ],
)  # fmt: skip
def test_a_question_that_nobody_could_ask(
    action: Action, attributes: dict[str, Any], arguments: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(SubletError) as refused:
        asked_resource(action, "x", attributes, arguments)
    assert (refused.value.code, refused.value.message, refused.value.hint) == (
        LocalCode.INVALID_ARGUMENT, message, hint,
    )  # fmt: skip


CALLED: dict[str, Any] = {"path": "src/../b", "n": 1}


@pytest.mark.parametrize(
    ("action", "name", "attributes", "arguments", "asked"),
    [
        (Action.ROOM_SEND, "r", {"size_bytes": "2 KiB"}, {}, {"size_bytes": 2_048}),
        (Action.ROOM_SEND, "r", {}, {}, {}),
        (Action.WORKSPACE_LEND, "/x", {}, {}, {"path": "/x"}),
        (Action.TOOL_CALL, "mcp.x", {}, {}, {"size_bytes": 0}),
        (Action.TOOL_CALL, "mcp.x", {"size_bytes": 7, "sifted": True, "unclear": True}, {},
         {"size_bytes": 7, "sifted": True, "unclear": True}),
        (Action.TOOL_CALL, "mcp.x", {"args.a": "x", "peer": "b"}, {}, {"args.a": "x", "peer": "b", "size_bytes": 0}),
        (Action.TOOL_CALL, "file.read", {}, CALLED,
         {"args.path": "src/../b", "args.n": 1, "size_bytes": 4 + 8 + 1 + 8, "path": ("b",)}),
        (Action.TOOL_CALL, "file.read", {"path": "c"}, CALLED,
         {"args.path": "src/../b", "args.n": 1, "size_bytes": 21, "path": "c"}),
        (Action.TOOL_CALL, "file.read", {}, {}, {"size_bytes": 0}),
        (Action.CAPABILITY_RUN, "file.read", {}, CALLED, {"args.path": "src/../b", "args.n": 1, "size_bytes": 21}),
    ],
)  # fmt: skip
def test_a_question_is_asked_as_a_gate_asks(
    action: Action, name: str, attributes: dict[str, Any], arguments: dict[str, Any], asked: dict[str, Any]
) -> None:
    assert asked_resource(action, name, attributes, arguments) == Resource(name, asked)


def test_what_a_gate_has_asked_is_taken_as_it_is() -> None:
    wrong: dict[str, Any] = {"size_bytes": "2 KiB", "access_mode": "x"}
    found = asked_resource(Action.TOOL_CALL, "file.read", wrong, CALLED, recorded=True)
    assert found.attributes == {"args.path": "src/../b", "args.n": 1, **wrong}
    with pytest.raises(SubletError):
        asked_resource(Action.TOOL_CALL, "file.read", {"depth": 1}, {}, recorded=True)

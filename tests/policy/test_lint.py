"""What lint says of rules, word by word: where, and why they never match or never matter."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sublet.policy.decision import Action, Kind
from sublet.policy.lint import lint
from sublet.policy.rules import Effect, Rule

EMPTY = "it is empty, or begins or ends with a space"
UNSEEN = "it consists of invisible characters only"


def rule(effect: Effect = "deny", action: Action = Action.DELEGATION_CREATE, kind: Kind = "mcp", **more: Any) -> Rule:
    return replace(Rule("r", effect, "global", frozenset({kind}), frozenset({action})), **more)


LENDS: Any = {"action": Action.LEND_ROOT_MANAGE, "kind": "human"}
CALLS: Any = {"action": Action.TOOL_CALL, "kind": "agent"}
NEVER = ": never matches: one denies all of it"
CONTROLS: Any = {"action": Action.DAEMON_CONTROL, "kind": "human"}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (rule(name=" a"), [f".subject.name: never matches: {EMPTY}"]),
        (rule(role="a "), [f".subject.role: never matches: {EMPTY}"]),
        (rule(resource=""), [f".resource: never matches: {EMPTY}"]),
        (rule(resource="\u200b"), [f".resource: never matches: {UNSEEN}"]),
        (rule(name=" a", resource=""), [f"{one}: never matches: {EMPTY}" for one in (".subject.name", ".resource")]),
        (rule(kind="human", name="eve"), [".subject.name: never matches: a person has no name here"]),
        (rule(kind="human", name="?*"), [".subject.name: never matches: a person has no name here"]),
        (rule(kind="human", name="*"), []),
        (rule(kind="human", name="*\u200b"), []),
        (
            rule("allow", kind="human", name="*\u200b", layer="role"),
            [".subject.name: never matches: a person has no name here"],
        ),
        (rule(**LENDS, resource="x"), [".resource: never matches: no resource of lend_root.manage is named like 'x'"]),
        (rule(**LENDS, resource="/x"), []),
        (rule(**LENDS, resource="*x"), []),
        (rule(**LENDS, resource="?x"), []),
        (rule(**LENDS, resource="[x]y"), []),
        (rule(**CONTROLS, resource="Stop"), []),
        (rule(**CONTROLS, resource="st\u043ep"), []),
        (
            rule(**CONTROLS, resource="sto"),
            [".resource: never matches: no resource of daemon.control is named like 'sto'"],
        ),
        (
            rule("allow", **CONTROLS, resource="st\u043ep", layer="role"),
            [".resource: never matches: no resource of daemon.control is named like 'st\u043ep'"],
        ),
        (rule(resource="/x"), [".resource: never matches: no resource of delegation.create is named like '/x'"]),
        (rule(action=Action.WORKSPACE_REVEAL, resource="/x"), []),
        (rule(action=Action.WORKSPACE_UNLOCK, resource="/x"), []),
        (
            rule(kind="peer"),
            [": never matters: whatever the rules say, nobody of whom it speaks may delegation.create"],
        ),
        (rule("allow", kind="peer"), [": never matches: no caller of its kind may ever be allowed delegation.create"]),
        (
            rule("allow"),
            [
                ": unreachable: the built-in rule default.mcp of the same layer says all of it already; "
                "to allow nothing else, put it in a higher layer"
            ],
        ),
        (rule("approval"), []),
        (rule("allow", layer="role"), []),
        (rule(id="default.x"), [".id: 'default.x' is an id that decisions without a rule of yours have"]),
        (rule(id="grant"), [".id: 'grant' is an id that decisions without a rule of yours have"]),
    ],
)
def test_what_is_wrong_with_a_rule(made: Rule, said: list[str]) -> None:
    assert lint({"here": made}) == [f"here{one}" for one in said]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (rule(), rule("allow", layer="role"), ": never matches: one denies all of it"),
        (rule(), rule("approval"), ": never matches: one denies all of it"),
        (
            rule(actions=frozenset({Action.ROOM_SEND, Action.TOOL_CALL}), resource="c*"),
            rule(action=Action.ROOM_SEND, resource="cat"),
            ": unreachable: one denies all of it already",
        ),
        (rule(**CALLS, resource="bash"), rule("allow", **CALLS, layer="role", resource="shell.exec"), NEVER),
        (rule(**CALLS, resource="b\u0430sh"), rule("allow", **CALLS, layer="role", resource="shell.exec"), NEVER),
        (rule(**CALLS, resource="bash"), rule("approval", **CALLS, resource="b\u0430sh"), NEVER),
        (rule(**CALLS, resource="n\u0435t*"), rule("approval", **CALLS, resource="n\u0435tw"), NEVER),
        (rule(), rule(layer="role"), ": unreachable: one denies all of it already"),
        (
            rule("allow", layer="agent"),
            rule("allow", layer="role"),
            ": never matches: one is of a higher layer and replaces it",
        ),
        (
            rule("allow", layer="role", resource="b*"),
            rule("allow", layer="role", resource="bob"),
            ": unreachable: one of the same layer says all of it already",
        ),
        (
            rule("approval", resource="b*"),
            rule("approval", resource="bob"),
            ": unreachable: one of the same layer says all of it already",
        ),
    ],
)
def test_what_another_rule_leaves_of_a_rule(first: Rule, second: Rule, said: str) -> None:
    assert lint({"one": first, "two": replace(second, id="s")}) == [f"two{said}"]


def test_an_id_names_one_rule() -> None:
    rules = {place: rule(resource=place) for place in ("one", "two", "three")}
    assert lint(rules) == [f"{place}.id: 'r' is the id of one already" for place in ("two", "three")]


def test_an_allow_is_unreachable_whichever_of_both_comes_first() -> None:
    narrow, wide = rule("allow", layer="role", resource="bob"), rule("allow", id="w", layer="role", resource="b*")
    assert lint({"one": narrow, "two": wide}) == ["one: unreachable: two of the same layer says all of it already"]
    assert lint({"one": replace(narrow, effect="approval"), "two": replace(wide, effect="approval")}) == []

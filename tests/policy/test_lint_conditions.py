"""A condition is refused exactly where nothing that a gate asks about could ever satisfy it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.policy.attributes import attribute_of
from sublet.policy.decision import Action, Kind
from sublet.policy.lint_conditions import lint_conditions
from sublet.policy.rules import Condition, Effect, Rule
from sublet.protocol.bounds import MAX_TTL_SECONDS

ATTRIBUTES = {
    "access_mode": Action.DELEGATION_CREATE,
    "ttl_seconds": Action.DELEGATION_CREATE,
    "max_files": Action.DELEGATION_CREATE,
    "agent": Action.DELEGATION_CREATE,
    "partial": Action.DELEGATION_APPLY,
    "to": Action.DELEGATION_APPLY,
}
NUMBERS = [-1, 0, 1, 2, 3, MAX_TTL_SECONDS - 1, MAX_TTL_SECONDS, MAX_TTL_SECONDS + 1]
TEXTS = ["ro", "RW", "directory", "coder", "x"]
POSSIBLE: list[Any] = [*NUMBERS, *TEXTS, "rw", "branch", True, False]
VALUES = st.lists(st.sampled_from(POSSIBLE), min_size=1, max_size=2).map(tuple)
LIMITS = st.none() | st.sampled_from(NUMBERS)


def rule(name: str, condition: Condition, effect: Effect = "deny", action: Action | None = None) -> Rule:
    kinds = frozenset[Kind]({"mcp"})
    return Rule("r", effect, "global", kinds, frozenset({action or ATTRIBUTES[name]}), when={name: condition})


def could_hold(name: str, condition: Condition) -> bool:
    """Try everything that a gate could give."""
    attribute = attribute_of(ATTRIBUTES[name], name)
    assert attribute is not None
    given_by_gates = [value for value in POSSIBLE if not attribute.defect_of(value)]
    if attribute.type == "number":  # A bound on what is no number holds loosely; here it is one.
        given_by_gates = [value for value in given_by_gates if type(value) is int]
    return any(condition.holds(name, value, exact=False) for value in given_by_gates)


@given(st.sampled_from(sorted(ATTRIBUTES)), VALUES)
def test_one_of_some_values(name: str, values: tuple[Any, ...]) -> None:
    condition = Condition(values=values)
    assert bool(lint_conditions(rule(name, condition))) != could_hold(name, condition)


@given(st.sampled_from(["ttl_seconds", "max_files"]), LIMITS, LIMITS, st.none() | VALUES)
def test_numbers_within_limits(name: str, low: int | None, high: int | None, values: tuple[Any, ...] | None) -> None:
    condition = Condition(values=values, minimum=low, maximum=high)
    if condition != Condition():
        assert bool(lint_conditions(rule(name, condition))) != could_hold(name, condition)


@pytest.mark.parametrize(
    ("name", "condition", "fault"),
    [
        ("agent", Condition(glob="co*"), ""),
        ("agent", Condition(glob="["), "is not closed"),
        ("agent", Condition(values=("coder", "b[")), "'b[' never matches"),
        ("agent", Condition(minimum=1), "min and max are for numbers"),
        ("agent", Condition(maximum=1), "min and max are for numbers"),
        ("agent", Condition(scopes=("a",)), "within is for paths"),
        ("agent", Condition(values=("coder",), glob="x*"), "none of the values is as the rest"),
        ("agent", Condition(values=("coder", "xy"), glob="x*"), ""),
        ("agent", Condition(), "says nothing"),
        ("partial", Condition(glob="t*"), "like is for text"),
        ("partial", Condition(values=(1,)), "it is a flag"),
        ("ttl_seconds", Condition(glob="1*"), "like is for text"),
        ("ttl_seconds", Condition(values=("60",)), "it is a number"),
        ("ttl_seconds", Condition(minimum=5, maximum=4), "min is greater than max"),
        ("ttl_seconds", Condition(minimum=5, maximum=5), ""),
        ("ttl_seconds", Condition(maximum=0), "at least 1 and at most 604800"),
        ("ttl_seconds", Condition(minimum=604_801), "at least 1 and at most 604800"),
        ("ttl_seconds", Condition(values=(0,)), "at least 1"),
        ("max_files", Condition(values=(-1,)), "at least 0"),
        ("ttl_seconds", Condition(values=(5,), minimum=6), "no value is within min and max"),
        ("access_mode", Condition(glob="r?"), ""),
        ("access_mode", Condition(glob="R?"), ""),
        ("access_mode", Condition(glob="x*"), "it is one of ro, rw"),
        ("access_mode", Condition(values=("rx",)), "it is one of ro, rw"),
        ("colour", Condition(values=("red",)), "no action of the rule has this attribute"),
    ],
)
def test_why_a_condition_never_holds(name: str, condition: Condition, fault: str) -> None:
    found = lint_conditions(rule(name, condition, action=None if name in ATTRIBUTES else Action.DELEGATION_CREATE))
    assert bool(found) == bool(fault)
    assert all(place == name for place, _ in found)
    assert not fault or fault in found[0][1]


def test_what_a_condition_without_its_attribute_means_depends_on_the_rule() -> None:
    for effect, said in (("allow", "never matches"), ("deny", "always holds"), ("approval", "always holds")):
        made = rule("colour", Condition(values=("red",)), effect, Action.ROOM_SEND)  # type: ignore[arg-type]
        assert said in lint_conditions(made)[0][1]


@pytest.mark.parametrize(
    ("effect", "name", "condition", "fault"),
    [
        ("allow", "args.command", Condition(glob="make *"), ""),
        ("allow", "args.command", Condition(glob="make; *"), "never matches"),
        ("allow", "args.cmd", Condition(values=("make a|b",)), "is not one simple command"),
        ("allow", "args.cmd", Condition(values=("make a",)), ""),
        ("deny", "args.command", Condition(glob="make; *"), ""),
        ("allow", "args.other", Condition(glob="make; *"), ""),
        ("allow", "args.other", Condition(scopes=("a",)), "within is for the attribute path"),
        ("allow", "args.other", Condition(minimum=3), ""),
        ("allow", "args.", Condition(minimum=3), "no action of the rule"),
    ],
)
def test_conditions_on_arguments(effect: Effect, name: str, condition: Condition, fault: str) -> None:
    found = lint_conditions(rule(name, condition, effect, Action.TOOL_CALL))
    assert bool(found) == bool(fault)
    assert not fault or fault in found[0][1]


@pytest.mark.parametrize(
    ("resource", "condition", "fits"),
    [
        ("/srv/a", Condition(values=("/srv/a",)), True),
        ("/srv/a", Condition(values=("/srv/b",)), False),
        ("/srv/a", Condition(scopes=("/srv",)), True),
        ("/srv/a", Condition(glob="/srv/b/**"), False),
        ("/srv/*", Condition(values=("/srv/b",)), True),
        ("*", Condition(values=("/srv/b",)), True),
    ],
)
def test_one_path_is_not_another(resource: str, condition: Condition, fits: bool) -> None:
    made = Rule(
        "r", "deny", "global", frozenset({"mcp"}), frozenset({Action.WORKSPACE_LEND}),
        resource=resource, when={"path": condition},
    )  # fmt: skip
    assert (lint_conditions(made) == []) is fits

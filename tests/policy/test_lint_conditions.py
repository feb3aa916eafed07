"""A condition is refused exactly where nothing that a gate asks about could ever satisfy it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.policy.attributes import PATH_RESOURCES, attribute_of
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
        ("agent", Condition(values=("c\u043eder",), glob="co*"), ""),
        ("ttl_seconds", Condition(values=(1,)), ""),
        ("ttl_seconds", Condition(values=(604_800,)), ""),
        ("ttl_seconds", Condition(values=(604_801,)), "at most 604800"),
        ("ttl_seconds", Condition(values=(5,), minimum=5), ""),
        ("ttl_seconds", Condition(values=(5,), maximum=5), ""),
        ("ttl_seconds", Condition(values=(5,), minimum=1, maximum=4), "no value is within"),
        ("max_files", Condition(maximum=0), ""),
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


def test_the_path_of_both_kinds_of_path_resources_is_compared_by_components() -> None:
    for effect, resource, values, fits in (
        ("deny", "/srv/a", ("/srv/a/",), True),
        ("deny", "/srv/a", ("/srv/b",), False),
        ("deny", "/srv/../a", ("/x",), True),
        ("allow", "/srv/../a", ("/x",), False),
    ):
        made = Rule(
            "r", effect, "global", frozenset({"human"}), PATH_RESOURCES,  # type: ignore[arg-type]
            resource=resource, when={"path": Condition(values=values)},
        )  # fmt: skip
        assert (lint_conditions(made) == []) is fits


def test_all_conditions_that_never_hold_are_told() -> None:
    wrong = "within is for the attribute path, as arguments are what the agent writes"
    conditions = {
        "args.x": Condition(scopes=("a",)),
        "path": Condition(values=("a/..",)),
        "peer": Condition(values=("b[",)),
        "args.command": Condition(glob="a;b"),
        "room": Condition(values=("a", "b"), glob="c"),
    }
    made = Rule("r", "allow", "role", frozenset({"agent"}), frozenset({Action.TOOL_CALL}), when=conditions)
    assert lint_conditions(made) == [
        ("args.x", f"never holds: {wrong}"),
        ("path", "'a/..' is no path: write whole components, without '..' and wildcards"),
        ("peer", "'b[' never matches: its '[' is not closed"),
        (
            "args.command",
            "never matches: it is matched with the words of one simple command, without quotes, ';', '|', '$' "
            "and the like",
        ),
        ("room", "never holds: none of the values is as the rest of the condition wants it"),
    ]


@pytest.mark.parametrize(
    ("values", "glob", "fits"), [("src/a/b", "src/*", False), ("src/a", "src/*", True), ("src/a/b", "src/**", True)]
)
def test_a_path_is_like_a_glob_by_its_components(values: str, glob: str, fits: bool) -> None:
    made = rule("path", Condition(values=(values,), glob=glob), action=Action.TOOL_CALL)
    assert (lint_conditions(made) == []) is fits

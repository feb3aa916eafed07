"""What the rules say, told once more rule by rule: layers, denies, approvals, grants, and what a request leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.policy.config import PolicyConfig
from sublet.policy.decider import decide_by_rules
from sublet.policy.decision import Action, Decision, Kind, Resource, Subject
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.limits import Limits
from sublet.policy.rule_set import RuleSet
from sublet.policy.rules import Effect, Layer, Rule
from sublet.policy.table import RuleTable

LAYERS: tuple[Layer, ...] = ("global", "role", "agent")
NAMES = ("*", "cl*", "claude", "cursor")
PEERS = ("*", "b*", "bob", "carol")
AGENT = Subject("mcp", "claude")


def rule(drawn: Any, number: int) -> Rule:
    effect, layer, name, resource = drawn
    return Rule(f"r{number}", effect, layer, frozenset({"mcp"}), frozenset({Action.ROOM_SEND}), name, resource)


def like(pattern: str, text: str) -> bool:
    return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern


EFFECTS = st.sampled_from(["allow", "approval", "deny"])
DRAWN = st.tuples(EFFECTS, st.sampled_from(LAYERS), st.sampled_from(NAMES), st.sampled_from(PEERS))
REQUESTED = st.tuples(EFFECTS, st.just("request"), st.just("*"), st.sampled_from(PEERS))


def plainly(rules: list[Rule], layers: tuple[Layer, ...], name: str, peer: str) -> tuple[str, str, str]:
    """Return outcome, layer and rule."""
    mine = [one for one in rules if like(one.name, name)]
    fitting = [one for one in mine if like(one.resource, peer)]
    by = {layer: [one for one in fitting if one.layer == layer] for layer in layers}
    for layer in layers:
        for one in by[layer]:
            if one.effect == "deny":
                return "deny", layer, one.id
    approval = next((one for layer in layers for one in by[layer] if one.effect == "approval"), None)
    for layer in reversed(layers):
        if any(one.layer == layer and one.effect == "allow" for one in mine):
            allow = next((one for one in by[layer] if one.effect == "allow"), None)
            higher = layers[layers.index(layer) :]
            if allow is None and not any(one.effect == "approval" for above in higher for one in by[above]):
                return "deny", layer, "unmatched"
            if approval is None:
                assert allow is not None
                return "allow", layer, allow.id
            break
    if approval is not None:
        return "needs_grant", approval.layer, approval.id
    return "deny", "global", "unmatched"


def said(found: Decision) -> tuple[str, str, str]:
    return found.outcome, found.layer, found.rule


def decided(rules: list[Rule], name: str, peer: str, request: list[Rule], *, granted: bool) -> Decision:
    return decide_by_rules(
        RuleTable(rules), Limits(), Subject("mcp", name), Action.ROOM_SEND, Resource(peer), request,
        granted=granted, now=0.0,
    )  # fmt: skip


@given(
    st.lists(DRAWN, max_size=7), st.sampled_from(["claude", "cursor", "zed"]), st.sampled_from(["bob", "carol", "ann"])
)
def test_layers_denies_and_approvals(drawn: list[Any], name: str, peer: str) -> None:
    rules = [rule(one, number) for number, one in enumerate(drawn)]
    wanted = plainly(rules, LAYERS, name, peer)
    for granted in (False, True):  # Only calls are granted, and this is none.
        assert said(decided(rules, name, peer, [], granted=granted)) == wanted


@given(st.lists(DRAWN, max_size=4), st.lists(REQUESTED, max_size=3), st.sampled_from(["bob", "carol"]))
def test_a_request_takes_away_and_gives_nothing(drawn: list[Any], asked: list[Any], peer: str) -> None:
    rules = [rule(one, number) for number, one in enumerate(drawn)]
    request = [rule(one, 100 + number) for number, one in enumerate(asked)]
    below = plainly(rules, LAYERS, "claude", peer)
    own = plainly(request, ("request",), "claude", peer)
    found = said(decided(rules, "claude", peer, request, granted=False))
    names_some = any(one.effect == "allow" for one in request)
    if below[0] == "deny" or own[0] == "allow" or (own[2] == "unmatched" and not names_some):
        assert found == below
    else:
        assert found == own


def call(effect: Effect | None, *, granted: bool, tool: str = "mcp.x", **attributes: Any) -> tuple[str, str]:
    kinds, actions = frozenset[Kind]({"agent"}), frozenset({Action.TOOL_CALL})
    found = decide_by_rules(
        RuleTable([] if effect is None else [Rule("r", effect, "global", kinds, actions)]),
        Limits(access_modes=attributes.pop("modes", ("ro", "rw"))),
        Subject("agent", "coder"), Action.TOOL_CALL, Resource(tool, attributes), granted=granted, now=0.0,
    )  # fmt: skip
    return found.outcome, found.rule


@pytest.mark.parametrize(
    ("effect", "without", "with_grant"),
    [
        ("allow", ("allow", "r"), ("allow", "r")),
        ("approval", ("needs_grant", "r"), ("allow", "grant")),
        (None, ("deny", "unmatched"), ("allow", "grant")),
        ("deny", ("deny", "r"), ("deny", "r")),
    ],
)
def test_a_grant_does_what_an_approval_wants_and_moves_no_deny(
    effect: Effect | None, without: tuple[str, str], with_grant: tuple[str, str]
) -> None:
    assert call(effect, granted=False) == without
    assert call(effect, granted=True) == with_grant


@pytest.mark.parametrize(
    ("tool", "attributes", "limit"),
    [
        ("file.write", {"access_mode": "rw"}, None),
        ("Write", {"access_mode": "ro"}, "limits.read_only"),
        ("file.edit", {"access_mode": "ro"}, "limits.read_only"),
        ("file.read", {"access_mode": "ro"}, None),
        ("file.read", {"access_mode": "rw", "modes": ("ro",)}, "limits.access_modes"),
        ("file.read", {"path": "src/a"}, None),
        ("file.read", {"path": "/etc"}, "limits.inside_lease"),
        ("file.read", {"path": ("src/a", "../b")}, "limits.inside_lease"),
        ("file.write", {"path": ("src/a", "/b")}, "limits.inside_lease"),
        ("mcp.x", {"path": "/etc"}, None),
        ("shell.exec", {"path": "../x", "access_mode": "ro"}, None),
    ],
)
def test_no_rule_and_no_grant_exceeds_a_limit(tool: str, attributes: dict[str, Any], limit: str | None) -> None:
    for effect, granted in (("allow", False), ("approval", True), ("approval", False)):
        outcome, by = call(effect, granted=granted, tool=tool, **attributes)  # type: ignore[arg-type]
        if limit is not None:
            assert (outcome, by) == ("deny", limit)
        else:
            assert outcome == ("needs_grant" if effect == "approval" and not granted else "allow")


def test_a_path_outside_is_the_business_of_file_tools_alone() -> None:
    found = decide_by_rules(
        RuleTable([Rule("r", "allow", "global", frozenset({"mcp"}), frozenset({Action.WORKSPACE_LEND}))]),
        Limits(), AGENT, Action.WORKSPACE_LEND, Resource("file.write", {"path": "/x", "access_mode": "ro"}), now=0.0,
    )  # fmt: skip
    assert said(found) == ("allow", "global", "r")


def test_a_decision_says_what_its_rule_says() -> None:
    for effect in ("allow", "approval", "deny"):
        made = Rule(
            "r", effect, "role", frozenset({"mcp"}), frozenset({Action.ROOM_SEND}),
            reason="so", hint="do", hide=effect == "deny", record=effect == "allow",
        )  # fmt: skip
        assert decided([made], "claude", "bob", [], granted=False) == Decision(
            effect == "allow", "role", "r", "so", "do",
            needs_grant=effect == "approval", hidden=effect == "deny", record=effect == "allow",
        )  # fmt: skip
        plain = Rule("r", effect, "role", frozenset({"mcp"}), frozenset({Action.ROOM_SEND}))
        assert "rule r" in decided([plain], "claude", "bob", [], granted=False).reason


def test_what_the_ceiling_leaves_out_nothing_allows() -> None:
    every = Rule("r", "allow", "agent", frozenset({"peer"}), frozenset(Action))
    found = decide_by_rules(
        RuleTable([every]), Limits(), Subject("peer", "bob"), Action.PEER_MANAGE, Resource("x"), granted=True, now=0.0
    )
    assert said(found) == ("deny", "global", "ceiling")


def test_what_nothing_allows_is_denied_with_what_was_asked() -> None:
    nothing = decided([], "claude", "bob", [], granted=False)
    assert nothing.reason == "no rule allows room.send for callers of kind mcp"
    other = rule(("allow", "role", "*", "carol"), 0)
    assert decided([other], "claude", "bob", [], granted=False).reason == (
        "the role layer says what this caller may do by room.send, and this is not in it"
    )
    both, asked = rule(("allow", "role", "*", "*"), 0), rule(("allow", "request", "*", "carol"), 1)
    assert decided([both], "claude", "bob", [asked], granted=False).reason == (
        "the request layer says what this caller may do by room.send, and this is not in it"
    )


def test_an_approval_permits_beside_an_allow_of_its_layer_for_something_else() -> None:
    approval, allow = rule(("approval", "role", "*", "bob"), 0), rule(("allow", "role", "*", "carol"), 1)
    assert said(decided([approval, allow], "claude", "bob", [], granted=False)) == ("needs_grant", "role", "r0")


@pytest.mark.parametrize(("granted", "outcome"), [(False, ("needs_grant", "r1")), (True, ("allow", "r0"))])
def test_what_a_request_wants_approved_a_grant_allows_as_the_rules_do(granted: bool, outcome: tuple[str, str]) -> None:
    kinds, actions = frozenset[Kind]({"agent"}), frozenset({Action.TOOL_CALL})
    found = decide_by_rules(
        RuleTable([Rule("r0", "allow", "global", kinds, actions)]), Limits(), Subject("agent", "coder"),
        Action.TOOL_CALL, Resource("mcp.x"), [Rule("r1", "approval", "request", kinds, actions)],
        granted=granted, now=0.0,
    )  # fmt: skip
    assert (found.outcome, found.rule) == outcome


def test_a_refusal_by_a_limit_as_a_whole() -> None:
    kinds, actions = frozenset[Kind]({"agent"}), frozenset({Action.TOOL_CALL})
    asked: list[tuple[Any, dict[str, Any]]] = [
        (("ro",), {"access_mode": "rw"}), (("ro", "rw"), {"access_mode": "ro"}), (("rw",), {"path": ("a", "/b")}),
        (("rw",), {"path": ("a", "b")}), (("rw",), {}),
    ]  # fmt: skip
    found = [
        decide_by_rules(
            RuleTable([Rule("r", "allow", "agent", kinds, actions)]), Limits(access_modes=modes),
            Subject("agent", "coder"), Action.TOOL_CALL, Resource("file.write", attributes), now=0.0,
        )
        for modes, attributes in asked
    ]  # fmt: skip
    outside = "the path leads out of the lease, or it can't be told where it leads"
    assert found == [
        Decision(False, "global", "limits.access_modes", "access rw is not allowed", "Ask for: ro."),
        Decision(False, "global", "limits.read_only", "the lease is read-only, and file.write writes"),
        Decision(False, "global", "limits.inside_lease", outside, "Name a path inside the lease, without '..'."),
        *[Decision(True, "agent", "r", "rule r allows it")] * 2,
    ]


def test_a_rule_without_words_is_told_by_what_it_does() -> None:
    for effect, words in (("allow", "allows it"), ("approval", "wants a person's approval"), ("deny", "denies it")):
        made = rule((effect, "role", "*", "*"), 0)
        assert decided([made], "claude", "bob", [], granted=False).reason == f"rule r0 {words}"


def test_nothing_is_granted_unless_it_is_said() -> None:
    wanted = Rule("r", "approval", "global", frozenset({"agent"}), frozenset({Action.TOOL_CALL}))
    agent, asked = Subject("agent", "coder"), Resource("mcp.x")
    rules = RuleSet([wanted], Limits())
    found = [
        decide_by_rules(RuleTable([wanted]), Limits(), agent, Action.TOOL_CALL, asked, now=0.0),
        rules.decide(agent, Action.TOOL_CALL, asked, now=0.0),
        Policy(Protected(Path("/nowhere")), PolicyConfig((wanted,))).decide(agent, Action.TOOL_CALL, asked),
    ]
    assert [one.outcome for one in found] == ["needs_grant"] * 3

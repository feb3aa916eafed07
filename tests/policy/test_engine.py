"""Decisions: the defaults, the four layers, and names that only look alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.policy.config import PolicyConfig, parse
from sublet.policy.decision import Action, Decision, Kind, Resource, Subject
from sublet.policy.defaults import CEILING, DEFAULT_RULES
from sublet.policy.engine import Policy
from sublet.policy.lending import Protected
from sublet.policy.limits import Limits
from sublet.policy.names import plain, skeleton
from sublet.policy.rules import KINDS, Condition, Effect, Layer, Rule
from sublet.policy.times import Times

HUMAN = Subject("human")
AGENT = Subject("mcp", "claude")


def rule(
    effect: Effect,
    action: Action = Action.DELEGATION_CREATE,
    *,
    layer: Layer = "global",
    kind: Kind = "mcp",
    name: str = "*",
    resource: str = "*",
) -> Rule:
    label = f"{layer}.{effect}.{resource}.{name}"
    return Rule(label, effect, layer, frozenset({kind}), frozenset({action}), name, resource)


def policy(tmp_path: Path, *rules: Rule, limits: Limits | None = None) -> Policy:
    return Policy(Protected(tmp_path / "home"), PolicyConfig(rules, limits or Limits()))


def create(engine: Policy, peer: str = "bob", subject: Subject = AGENT, request: tuple[Rule, ...] = ()) -> Decision:
    return engine.decide(subject, Action.DELEGATION_CREATE, Resource(peer), request)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("action", Action)
def test_defaults(tmp_path: Path, kind: Kind, action: Action) -> None:
    """The whole table, told once more in another form."""
    expected = {
        "human": set(Action),
        "mcp": {
            Action.DELEGATION_CREATE,
            Action.DELEGATION_READ,
            Action.DELEGATION_CANCEL,
            Action.DELEGATION_EXTEND,
            Action.DELEGATION_SAY,
            Action.DELEGATION_REVIEW,
            Action.DELEGATION_APPLY,
            Action.DELEGATION_DISCARD,
            Action.DELEGATION_UNDO,
            Action.WORKSPACE_LEND,
            Action.ROOM_READ,
            Action.ROOM_SEND,
            Action.ROOM_MANAGE,
        },
        "peer": {Action.ASSIGNMENT_ACCEPT, Action.AGENT_MESSAGE},
        "a2a": {Action.AGENT_MESSAGE},
        "agent": set(),
        "node": {Action.NODE_READ, Action.AGENT_MESSAGE},
        "office": {Action.OFFICE_CALL, Action.OFFICE_LOOK},
    }
    project = tmp_path / "project"
    project.mkdir()
    subject = Subject(kind, "x", (str(project),))
    decision = policy(tmp_path).decide(subject, action, Resource("x", {"path": str(project)}))
    assert decision.allowed is (action in expected[kind])
    assert decision.reason
    assert decision.rule


def test_no_rule_allows_more_than_the_ceiling(tmp_path: Path) -> None:
    everything = Rule("all", "allow", "agent", frozenset(KINDS), frozenset(Action))
    engine = policy(tmp_path, everything)
    for kind in KINDS:
        for action in set(Action) - CEILING[kind]:
            assert not engine.decide(Subject(kind, "x"), action, Resource("x")).allowed


def test_revealing_is_for_people_unless_a_rule_allows_it(tmp_path: Path) -> None:
    reveal = Resource(".env", {"path": "/project"})
    assert policy(tmp_path).decide(HUMAN, Action.WORKSPACE_REVEAL, reveal).allowed
    assert not policy(tmp_path).decide(AGENT, Action.WORKSPACE_REVEAL, reveal).allowed
    widened = policy(tmp_path, rule("allow", Action.WORKSPACE_REVEAL, resource=".env"))
    assert widened.decide(AGENT, Action.WORKSPACE_REVEAL, reveal).allowed
    assert not widened.decide(AGENT, Action.WORKSPACE_REVEAL, Resource("id_rsa")).allowed
    denied = policy(tmp_path, rule("deny", Action.WORKSPACE_REVEAL, kind="human"))
    assert not denied.decide(HUMAN, Action.WORKSPACE_REVEAL, reveal).allowed


@pytest.mark.parametrize("layer", ["global", "role", "agent"])
def test_a_deny_stands_in_every_layer(tmp_path: Path, layer: Layer) -> None:
    engine = policy(tmp_path, rule("deny", layer=layer, resource="mallory"), rule("allow", layer="agent"))
    decision = create(engine, "mallory")
    assert (decision.allowed, decision.layer, decision.rule) == (False, layer, f"{layer}.deny.mallory.*")
    assert create(engine, "bob").allowed


def test_a_higher_layer_replaces_the_allows_below_it(tmp_path: Path) -> None:
    engine = policy(
        tmp_path,
        rule("allow", layer="role", resource="b*"),
        rule("allow", layer="agent", resource="carol", name="claude"),
    )
    assert create(engine, "carol").allowed
    decision = create(engine, "bob")
    assert (decision.allowed, decision.layer, decision.rule) == (False, "agent", "unmatched")
    other = Subject("mcp", "cursor")
    assert create(engine, "bob", other).layer == "role"
    assert not create(engine, "carol", other).allowed
    assert create(engine, "carol", HUMAN).allowed
    reading = engine.decide(AGENT, Action.DELEGATION_READ, Resource("dlg_1"))
    assert reading.allowed


def test_the_request_layer_only_narrows(tmp_path: Path) -> None:
    engine = policy(tmp_path, rule("deny", resource="mallory"))
    assert not create(engine, "mallory", request=(rule("allow", layer="request"),)).allowed
    assert not create(engine, "bob", request=(rule("deny", layer="request", resource="bob"),)).allowed
    assert create(engine, "bob", request=(rule("deny", layer="request", resource="carol"),)).allowed
    only_bob = (rule("allow", layer="request", resource="bob"),)
    assert create(engine, "bob", request=only_bob).allowed
    assert not create(engine, "carol", request=only_bob).allowed
    unrelated = (rule("allow", Action.DELEGATION_READ, layer="request"),)
    assert create(engine, "bob", request=unrelated).allowed


@pytest.mark.parametrize(
    "spelling",
    ["mallory", "Mallory", "MALLORY", "m\u0430llory", "\uff4dallory", "mal\u200blory", "mall\u03bfry"],
)
def test_a_lookalike_is_the_same_name(tmp_path: Path, spelling: str) -> None:
    engine = policy(tmp_path, rule("deny", resource="Mallory"))
    assert not create(engine, spelling).allowed
    assert not create(policy(tmp_path, rule("deny", name="mallory")), subject=Subject("mcp", spelling)).allowed


def test_paths_are_compared_as_they_are(tmp_path: Path) -> None:
    engine = policy(tmp_path, rule("deny", Action.WORKSPACE_REVEAL, kind="human", resource="*/Secret/*"))

    def reveal(name: str) -> bool:
        return engine.decide(HUMAN, Action.WORKSPACE_REVEAL, Resource(name)).allowed

    assert not reveal("/srv/Secret/x")
    assert reveal("/srv/secret/x")


def test_conditions(tmp_path: Path) -> None:
    document = {
        "version": 1,
        "role": {
            "mcp": [
                {
                    "id": "short-and-read-only",
                    "effect": "allow",
                    "action": "delegation.create",
                    "when": {"ttl_seconds": {"max": 600}, "access_mode": "ro", "agent": {"like": "rev*"}},
                },
            ]
        },
        "global": [
            {"id": "no-root", "effect": "deny", "action": "*", "when": {"agent": {"any_of": ["root", "admin"]}}},
        ],
    }
    engine = Policy(Protected(tmp_path), parse(document))

    def allowed(**attributes: str | int) -> bool:
        given = {"agent": "reviewer", "access_mode": "ro", "ttl_seconds": 600, **attributes}
        return engine.decide(AGENT, Action.DELEGATION_CREATE, Resource("bob", dict(given))).allowed

    assert allowed()
    assert not allowed(ttl_seconds=601)
    assert not allowed(access_mode="rw")
    assert not allowed(agent="writer")
    assert not allowed(agent="ROOT")
    assert not engine.decide(HUMAN, Action.DELEGATION_CREATE, Resource("bob", {"agent": "Admin"})).allowed


def test_what_is_not_known_never_widens(tmp_path: Path) -> None:
    """An attribute that is not given: an allow does not match, a deny does."""
    condition = {"when": {"access_mode": "ro"}, "action": "delegation.create"}
    allowing = parse({"version": 1, "role": {"mcp": [{"id": "a", "effect": "allow", **condition}]}})
    denying = parse({"version": 1, "global": [{"id": "d", "effect": "deny", **condition}]})
    assert not create(Policy(Protected(tmp_path), allowing)).allowed
    assert not create(Policy(Protected(tmp_path), denying)).allowed


def test_limits_bound_what_rules_allow(tmp_path: Path) -> None:
    engine = policy(tmp_path, limits=Limits(access_modes=("ro",)))
    for subject, action in ((HUMAN, Action.DELEGATION_CREATE), (Subject("peer", "bob"), Action.ASSIGNMENT_ACCEPT)):
        decision = engine.decide(subject, action, Resource("x", {"access_mode": "rw"}))
        assert (decision.allowed, decision.rule) == (False, "limits.access_modes")
        assert engine.decide(subject, action, Resource("x", {"access_mode": "ro"})).allowed


@given(st.text(max_size=20))
def test_a_canonical_name_stays_as_it_is(name: str) -> None:
    assert plain(plain(name)) == plain(name)
    assert skeleton(skeleton(name)) == skeleton(name)


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    return rule(
        draw(st.sampled_from(["allow", "deny"])),
        layer=draw(st.sampled_from(["global", "role", "agent"])),
        name=draw(st.sampled_from(["*", "claude", "c*", "cursor"])),
        resource=draw(st.sampled_from(["*", "bob", "b*", "carol"])),
    )


@given(
    st.lists(rules(), max_size=8),
    st.sampled_from(["claude", "cursor", "zed"]),
    st.sampled_from(["bob", "carol", "bea"]),
)
def test_decisions_follow_the_definition(found: list[Rule], name: str, peer: str) -> None:
    """The index against the rules read one by one."""

    def like(pattern: str, text: str) -> bool:
        return text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern

    def expected() -> bool:
        mine = [r for r in found if like(r.name, name)]
        if any(r.effect == "deny" and like(r.resource, peer) for r in mine):
            return False
        for layer in ("agent", "role"):
            allows = [r for r in mine if r.layer == layer and r.effect == "allow"]
            if allows:
                return any(like(r.resource, peer) for r in allows)
        return True  # the default rule allows it

    engine = Policy(Protected(Path("/nowhere")), PolicyConfig(tuple(found)))
    assert create(engine, peer, Subject("mcp", name)).allowed is expected()


def test_what_a_rule_hides_is_hidden_where_all_are_told_alike(tmp_path: Path) -> None:
    def hidden(*rules: Rule) -> bool:
        kinds, actions = frozenset[Kind]({"mcp", "a2a"}), frozenset({Action.ROOM_READ, Action.ROOM_SEND})
        return policy(tmp_path, *rules).hidden_from_anyone(kinds, actions, "Secret")

    def hiding(
        resource: str = "secret", kind: Kind = "mcp", action: Action = Action.ROOM_READ, hide: bool = True
    ) -> Rule:
        return replace(rule("deny", action, kind=kind, resource=resource), hide=hide)

    assert hidden(hiding())
    assert hidden(hiding(kind="peer"), hiding("s\u0435c*", "a2a", Action.ROOM_SEND))
    assert not hidden()
    assert not hidden(hiding(hide=False))
    assert not hidden(hiding(kind="peer"))
    assert not hidden(hiding(action=Action.ROOM_MANAGE))
    assert not hidden(hiding("other"))


def test_what_stands_whatever_is_asked_and_whoever_grants_it(tmp_path: Path) -> None:
    agent, call = Subject("agent", "coder"), Resource("file.read", {"path": "a"})

    def never(*rules: Rule, subject: Subject = agent, limits: Limits | None = None) -> str | None:
        found = policy(tmp_path, *rules, limits=limits).never(subject, Action.TOOL_CALL, call)
        return None if found is None else found.rule

    deny = rule("deny", Action.TOOL_CALL, kind="agent", resource="file.*")
    assert never(deny) == deny.id
    assert never(deny, limits=Limits(access_modes=("ro",))) == deny.id
    assert never(subject=Subject("peer", "bob")) == "ceiling"
    for other in (
        rule("approval", Action.TOOL_CALL, kind="agent"),
        rule("allow", Action.TOOL_CALL, kind="agent"),
        replace(deny, when={"path": Condition(glob="a")}),
        replace(deny, times=Times()),
        replace(deny, actions=frozenset({Action.AGENT_ASK})),
        replace(deny, resource="shell.*"),
        replace(deny, name="other"),
    ):
        assert never(other) is None, other
    assert never(replace(deny, times=Times()), deny) == deny.id


def test_the_time_and_the_grant_that_a_decision_is_made_with(tmp_path: Path) -> None:
    agent, day = Subject("agent", "coder"), 24 * 3600.0
    rules = (
        replace(rule("approval", Action.TOOL_CALL, kind="agent", layer="role"), times=Times(end=60)),
        rule("allow", Action.TOOL_CALL, kind="agent"),
    )
    engine = Policy(Protected(tmp_path), PolicyConfig(rules), clock=lambda: 30 * 60 + day)

    def outcome(**more: Any) -> str:
        return engine.decide(agent, Action.TOOL_CALL, Resource("mcp.x"), **more).outcome

    assert engine.now() == 30 * 60 + day
    assert (outcome(), outcome(granted=True), outcome(granted=False)) == ("needs_grant", "allow", "needs_grant")
    assert (outcome(at=2 * 3600 + day), outcome(at=0.0)) == ("allow", "needs_grant")


def test_a_policy_is_one_thing_with_its_rules_limits_and_source(tmp_path: Path) -> None:
    source = tmp_path / "policy.json"
    source.write_text('{"version": 1, "limits": {"slots": 3}, "tests": []}')
    own = (rule("deny", Action.TOOL_CALL, kind="agent", layer="agent"),)
    loaded = Policy.load(source, Protected(tmp_path / "home"), agent_rules=own)
    assert (loaded.source, loaded.limits.slots, loaded.tests) == (source, 3, 0)
    assert loaded.rules == loaded.rule_set.rules == (*DEFAULT_RULES, *own)
    assert loaded.rule_set.limits == loaded.limits
    loaded.reload()
    assert loaded.rules[-1:] == own
    assert Policy(Protected(tmp_path)).source is None
    project = str(tmp_path / "project")
    lend = loaded.decide(HUMAN, Action.WORKSPACE_LEND, Resource(project))
    assert (lend.allowed, lend.layer, lend.rule) == (True, "global", "default.human")
    assert loaded.decide(HUMAN, Action.WORKSPACE_LEND, Resource(str(tmp_path / "home"))).rule == "lending.home"

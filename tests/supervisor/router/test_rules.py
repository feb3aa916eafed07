"""Routes: the same from the same, never to whom the caller may not have, and every one with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublet.supervisor.router.route import (
    Candidate,
    Classification,
    Route,
    RouterConfig,
    RouteRequest,
    SkillFacts,
)
from sublet.supervisor.router.rules import answered, decide, needs_classifier
from sublet.supervisor.router.syntax import is_direct_hub, parse
from sublet.supervisor.sessions.session_parts import LastRoute

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}", fullmatch=True)
WORDS = st.sampled_from(["test", "tests", "docs", "review", "fix", "the", "python", "@coder", "/hub", "deploy", "x"])
TEXTS = st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=8).map(" ".join))
SKILLS = st.builds(
    SkillFacts,
    id=NAMES,
    name=TEXTS.map(lambda text: text[:50]),
    tags=st.lists(WORDS, max_size=3).map(tuple),
)
CANDIDATES = st.lists(
    st.builds(
        lambda **fields: Candidate(**fields),  # the model itself shows its aliases to hypothesis
        agent_id=NAMES,
        skills=st.lists(SKILLS, max_size=3).map(tuple),
        cost=st.sampled_from([0.0, 1.0, 2.0]),
        trust=st.sampled_from([0.5, 1.0]),
        load=st.sampled_from([0.0, 0.5, 1.0]),
        denied=st.sampled_from(["", "", "no rule allows it"]),
    ),
    max_size=5,
    unique_by=lambda one: one.agent_id,
).map(tuple)
CONFIGS = st.builds(
    RouterConfig,
    default_route=st.sampled_from(["", "reject", "ask_human", "coder"]),
    min_confidence=st.floats(0, 1),
    remember=st.booleans(),
    hub=st.booleans(),
)
LASTS = st.one_of(
    st.none(),
    st.builds(
        LastRoute,
        target=NAMES,
        decision=st.sampled_from(["dispatch_agent", "reject"]),
        confidence=st.floats(0, 1),
        timestamp=st.just("2026-01-01T00:00:00Z"),
    ),
)
REQUESTS = st.builds(
    RouteRequest,
    text=TEXTS,
    agent=st.one_of(st.just(""), NAMES),
    candidates=CANDIDATES,
    modules=st.lists(NAMES, max_size=3).map(tuple),
    last_route=LASTS,
    snapshot_changed=st.booleans(),
    config=CONFIGS,
)
PROPOSALS = st.one_of(
    st.none(),
    st.builds(
        Classification,
        decision=st.sampled_from(["direct_reply", "dispatch_agent", "dispatch_module", "ask_human", "reject"]),
        target=NAMES,
        confidence=st.floats(0, 1),
        reply=st.text(max_size=20),
    ),
)


@given(REQUESTS, PROPOSALS)
def test_whatever_is_asked_the_route_is_sound(request: RouteRequest, proposal: Classification | None) -> None:
    route = decide(request, proposal)
    assert route.reason
    allowed = {one.agent_id for one in request.candidates if not one.denied}
    match route.decision:
        case "dispatch_agent":
            assert route.target in allowed
            assert route.confidence >= request.config.min_confidence
        case "dispatch_module":
            assert route.target in request.modules
            assert is_direct_hub(request.text)
            assert request.config.hub
        case "ask_human":
            assert set(route.options) <= allowed
            assert route.options
        case "direct_reply":
            assert route.message
    # What was kept of it decides alike.
    again = RouteRequest.model_validate_json(request.model_dump_json(by_alias=True))
    kept = None if proposal is None else Classification.model_validate_json(proposal.model_dump_json())
    assert decide(again, kept) == route
    assert Route.model_validate_json(route.model_dump_json(by_alias=True)) == route


def agent(name: str, *tags: str, **more: object) -> Candidate:
    return Candidate.model_validate({"agent_id": name, "skills": [{"id": name, "tags": list(tags or ("x",))}], **more})


CODER = agent("coder", "python", "tests")
WRITER = agent("writer", "docs", "english")


def routed(text: str, *candidates: Candidate, **more: object) -> Route:
    return decide(RouteRequest.model_validate({"text": text, "candidates": candidates or (CODER, WRITER), **more}))


def last(target: str) -> LastRoute:
    return LastRoute(target=target, decision="dispatch_agent", confidence=1, timestamp="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("text", "more", "target", "rule"),
    [
        ("write docs for this", {}, "writer", "skills"),
        ("make the python tests pass", {}, "coder", "skills"),
        ("@writer make the python tests pass", {}, "writer", "mention"),
        ("ask @coder about the docs", {}, "coder", "mention"),
        ("hello", {}, "coder", "default"),
        ("hello", {"last_route": last("writer")}, "writer", "remembered"),
        ("and the python tests?", {"last_route": last("writer")}, "coder", "skills"),
        ("hello", {"last_route": last("gone")}, "coder", "default"),
        ("hello", {"last_route": last("writer"), "config": {"remember": False}}, "coder", "default"),
        ("hello", {"agent": "Writer"}, "writer", "named"),
        ("hello", {"config": {"defaultRoute": "writer"}}, "writer", "default"),
        ("someone@writer wrote to me", {}, "writer", "skills"),
    ],
)
def test_rules_in_their_order(text: str, more: dict[str, object], target: str, rule: str) -> None:
    route = routed(text, **more)
    assert (route.decision, route.target, route.rule) == ("dispatch_agent", target, rule)


def test_the_one_that_costs_less_is_trusted_more_or_is_less_busy_is_taken() -> None:
    one, other = agent("one", "docs", cost=2), agent("other", "docs")
    assert "costs less" in routed("docs", one, other).reason
    assert routed("docs", one, other).target == "other"
    assert routed("docs", agent("one", "docs", trust=0.5), other).target == "other"
    assert routed("docs", agent("one", "docs", load=0.75), other).target == "other"
    assert routed("docs", agent("one", "docs"), agent("other", "docs", load=1)).target == "one"
    preferred = routed(
        "docs", agent("one", "docs"), agent("other", "docs", provider="acp"), config={"defaultProvider": "acp"}
    )
    assert preferred.target == "other"


def test_a_person_is_asked_where_several_fit_alike() -> None:
    route = routed("docs", agent("one", "docs"), agent("other", "docs"))
    assert (route.decision, route.options) == ("ask_human", ("one", "other"))
    assert "1 one, 2 other" in route.message
    request = RouteRequest(text="docs", candidates=(agent("one", "docs"), agent("other", "docs")))
    for answer in ("2", "other", "@Other", " other "):
        chosen = answered(request, route.options, answer)
        assert chosen is not None
        assert (chosen.target, chosen.message) == ("other", "docs")
    for answer in ("3", "0", "nobody", "", "²", "9" * 5_000):
        assert answered(request, route.options, answer) is None


@pytest.mark.parametrize(
    ("text", "candidates", "more", "says"),
    [
        ("x", (agent("a", denied="no rule"),), {}, "policy lets this caller have no agent: no rule"),
        ("x", (agent("a", load=1),), {}, "busy"),
        ("@a do", (agent("a", denied="no rule"), CODER), {}, "agent a is not for this caller: no rule"),
        ("x", (CODER,), {"agent": "nobody"}, "there is no agent 'nobody' here; there are: coder"),
        ("@nobody hi", (CODER,), {}, "there is no agent 'nobody' here; there are: coder"),
        ("x", (CODER, WRITER), {"config": {"defaultRoute": "reject"}}, "default route is to reject"),
        ("/hub", (CODER,), {"modules": ["jira"]}, "/hub names no module; there are: jira"),
        ("/hub slack hi", (CODER,), {"modules": ["jira"]}, "there is no module 'slack'; there are: jira"),
        ("/hub jira hi", (CODER,), {"modules": ["jira"], "config": {"hub": False}}, "switched off"),
    ],
)
def test_refusals_say_why(text: str, candidates: tuple[Candidate, ...], more: dict[str, object], says: str) -> None:
    route = routed(text, *candidates, **more)
    assert route.decision == "reject"
    assert says in route.reason


def test_without_any_agent_it_is_rejected() -> None:
    assert decide(RouteRequest(text="x")).decision == "reject"


@pytest.mark.parametrize(
    ("text", "direct"),
    [
        ("/hub jira create a ticket", True),
        ("/hub JIRA x", True),
        ("/hub", True),
        ("please /hub jira x", False),
        (" /hub jira x", False),
        ("\n/hub jira x", False),
        ("/hubris is a word", False),
        ("`/hub jira x`", False),
    ],
)
def test_only_the_very_beginning_goes_to_a_module(text: str, direct: bool) -> None:
    assert is_direct_hub(text) is direct
    route = routed(text, CODER, modules=["jira"])
    assert (route.rule == "hub") is direct


def test_a_module_gets_what_is_left() -> None:
    route = routed("/hub jira create:\n a ticket ", CODER, modules=["Jira"])
    assert (route.decision, route.target, route.message) == ("dispatch_module", "Jira", "create:\n a ticket")


def test_the_supervisor_tells_who_is_there() -> None:
    route = routed("/agents", CODER, agent("secret", denied="no rule allows it"), modules=["jira"])
    assert route.decision == "direct_reply"
    assert "coder: coder" in route.message
    assert "secret: not for you: no rule allows it" in route.message
    assert "Modules: jira" in route.message


def test_a_classifier_is_asked_only_where_the_rules_are_unsure() -> None:
    candidates = (CODER, WRITER)
    assert needs_classifier(RouteRequest(text="hello", candidates=candidates))
    assert not needs_classifier(RouteRequest(text="docs please", candidates=candidates))
    assert not needs_classifier(RouteRequest(text="@coder hello", candidates=candidates))
    assert not needs_classifier(RouteRequest(text="/hub x", candidates=candidates))


def test_a_proposal_grants_nothing() -> None:
    hidden = agent("hidden", denied="no rule")
    request = RouteRequest(text="hello", candidates=(CODER, WRITER, hidden))
    for target in ("hidden", "nobody"):
        proposal = Classification(decision="dispatch_agent", target=target, confidence=1)
        assert decide(request, proposal).rule != "classifier" or decide(request, proposal).target in ("coder", "writer")
        assert decide(request, proposal).target != target
    module = Classification(decision="dispatch_module", target="jira", confidence=1)
    assert decide(request.model_copy(update={"modules": ("jira",)}), module).decision != "dispatch_module"
    good = Classification(decision="dispatch_agent", target="writer", confidence=0.8, reason="it writes")
    assert (decide(request, good).target, decide(request, good).rule) == ("writer", "classifier")
    unsure = good.model_copy(update={"confidence": 0.1})
    assert decide(request, unsure).decision == "ask_human"


def test_a_mention_ends_where_the_name_does() -> None:
    direct = parse("@coder: fix it")
    assert direct is not None
    assert (direct.kind, direct.name, direct.rest) == ("mention", "coder", "fix it")
    assert parse("@coder@node-x do it") is None

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
from sublet.supervisor.router.rules import answered, chosen_option, decide, needs_classifier, unanswerable
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
    for answer in ("2", "other", "@Other", " other ", " 2 "):
        chosen = answered(request, route.options, answer)
        assert chosen is not None
        assert (chosen.target, chosen.message) == ("other", "docs")
    for answer in ("3", "0", "00019", "20000", "nobody", "", "²", "9" * 5_000):
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


# Whole routes

ONE, OTHER, THIRD = agent("one", "docs"), agent("other", "docs"), agent("third", "ruby")
BUSY = agent("busy", load=1)


def skilled(name: str, *skills: dict[str, object]) -> Candidate:
    return Candidate.model_validate({"agent_id": name, "skills": skills})


def by_skills(target: str, confidence: float, reason: str, message: str = "docs") -> Route:
    return Route(
        decision="dispatch_agent",
        target=target,
        confidence=confidence,
        reason=reason,
        rule="skills",
        message=message,
    )


def question(rule: str, confidence: float, reason: str, *options: str) -> Route:
    listed = ", ".join(f"{number} {option}" for number, option in enumerate(options, 1))
    return Route.model_validate(
        {
            "decision": "ask_human",
            "confidence": confidence,
            "reason": reason,
            "rule": rule,
            "message": f"Which agent should do this? {listed}",
            "options": options,
        }
    )


def rejected(rule: str, reason: str) -> Route:
    return Route.model_validate({"decision": "reject", "confidence": 1, "reason": reason, "rule": rule})


def told(message: str) -> Route:
    reason = "it asks about this daemon itself"
    return Route(decision="direct_reply", confidence=1, reason=reason, rule="command", message=message)


ASK = {"config": {"defaultRoute": "ask_human"}}
FITS, ALIKE = "its skills fit: docs", "its skills fit as well as another's (docs), and it"
SEVERAL = "the skills of several agents fit alike: docs"
ALONE = (0.55 + 0.4, FITS)
"""How sure it is that the only agent with a skill is the right one."""


@pytest.mark.parametrize(
    ("text", "candidates", "more", "route"),
    [
        ("docs", (ONE, THIRD), {}, by_skills("one", *ALONE)),
        ("docs", (ONE, BUSY), {}, by_skills("one", *ALONE)),
        ("docs", (ONE, skilled("other", {"id": "docs"})), {}, by_skills("one", 0.55 + 0.4 / 3, FITS)),
        (
            "docs",
            (skilled("one", {"id": "docs"}), skilled("other", {"id": "x", "description": "docs"})),
            {},
            by_skills("one", 0.55 + 0.4 * 0.75, FITS),
        ),
        ("docs", (skilled("one", {"id": "x", "description": "docs"}), THIRD), {}, by_skills("one", *ALONE)),
        (
            "docs and ruby",
            (skilled("one", {"id": "x", "tags": ["docs"]}, {"id": "ruby"}), agent("other", "docs", "go")),
            {},
            by_skills("one", 0.55 + 0.4 * (5 - 3) / 5, "its skills fit: docs, ruby", "docs and ruby"),
        ),
        (
            "f e d c b the",
            (agent("one", "b", "c", "d", "e", "f", "g"), agent("other", "g")),
            {},
            by_skills("one", 0.95, "its skills fit: b, c, d, e, f", "f e d c b the"),
        ),
        (
            "f e d c b g the",
            (agent("one", "b", "c", "d", "e", "f", "g"), agent("other", "h")),
            {},
            by_skills("one", 0.95, "its skills fit: b, c, d, e, f", "f e d c b g the"),
        ),
        ("docs", (agent("one", "docs", cost=2), OTHER), {}, by_skills("other", 0.6, f"{ALIKE} costs less")),
        ("docs", (agent("one", "docs", trust=0.9), OTHER), {}, by_skills("other", 0.6, f"{ALIKE} is trusted more")),
        ("docs", (agent("one", "docs", load=0.25), OTHER), {}, by_skills("other", 0.55, f"{ALIKE} is less busy")),
        ("docs", (agent("one", "docs", load=0.12), OTHER), {}, question("skills", 0.3, SEVERAL, "one", "other")),
        (
            "docs",
            (agent("one", "docs", load=0.55), agent("other", "docs", load=0.6)),
            {},
            question("skills", 0.3, SEVERAL, "one", "other"),
        ),
        (
            "docs",
            (agent("one", "docs", load=0.9), agent("other", "docs", load=0.88)),
            {},
            question("skills", 0.3, SEVERAL, "one", "other"),
        ),
        (
            "docs",
            (ONE, agent("other", "docs", provider="acp")),
            {"config": {"defaultProvider": "acp"}},
            by_skills("other", 0.5, "its skills fit (docs), and it is of the default provider"),
        ),
        (
            "docs",
            (agent("one", "docs", cost=2), OTHER),
            {"config": {"minConfidence": 0.6}},
            by_skills("other", 0.6, f"{ALIKE} costs less"),
        ),
        (
            "@third and docs of @one",
            (ONE, OTHER, THIRD),
            {},
            Route(
                decision="dispatch_agent",
                target="third",
                confidence=1,
                reason="the request begins with its name",
                rule="mention",
                message="and docs of @one",
            ),
        ),
        (
            "let @other and @third",
            (ONE, OTHER, THIRD),
            {},
            question("mention", 0.3, "the request mentions several agents", "other", "third"),
        ),
        (
            "let @other and @third do docs",
            (ONE, OTHER, THIRD),
            {},
            question("mention", 0.3, "the request mentions several agents", "other", "one", "third"),
        ),
        (
            "python, docs; ask",
            (agent("a", "docs"), agent("b", "docs", "python"), agent("c")),
            {"config": {"minConfidence": 1}},
            question("skills", 0.55 + 0.4 / 2, "its skills fit: docs, python", "b", "a"),
        ),
        (
            "described",
            (skilled("a", {"id": "x", "description": "described"}), agent("c")),
            {"config": {"minConfidence": 1}},
            question("skills", 0.55 + 0.4, "its skills fit: described", "a"),
        ),
        (
            "hello",
            (ONE, OTHER),
            ASK,
            question("default", 0, "nothing here fits, and the default route is to ask", "one", "other"),
        ),
        (
            "hello",
            (ONE, BUSY),
            {"config": {"defaultRoute": "busy"}},
            rejected("default", "nothing here fits, and the default agent busy is not to be had"),
        ),
        ("hello", (BUSY,), {}, rejected("none", "all agents that this caller may have are busy; ask again later")),
        (
            "hello",
            (ONE, OTHER),
            {"config": {"defaultRoute": "reject", "minConfidence": 1}},
            rejected("default", "nothing here fits, and the default route is to reject"),
        ),
        (
            "/help",
            (agent("a", denied="no"), ONE, Candidate(agent_id="b"), BUSY),
            {},
            told(
                "a: not for you: no\none: one\nb: no skills told\nbusy (busy): busy\nWrite @AGENT first to choose one."
            ),
        ),
        (
            "/agents",
            (skilled("a", {"id": "x", "name": "X"}, {"id": "y"}), agent("b", load=0.9)),
            {"modules": ["jira", "mail"]},
            told("a: X; y\nb: b\nModules: jira, mail\nWrite @AGENT first to choose one, or /hub MODULE for a module."),
        ),
        (
            "/agents",
            (ONE,),
            {"modules": ["jira"], "config": {"hub": False}},
            told("one: one\nWrite @AGENT first to choose one."),
        ),
    ],
)
def test_whole_routes(text: str, candidates: tuple[Candidate, ...], more: dict[str, object], route: Route) -> None:
    assert routed(text, *candidates, **more) == route.model_copy(update={"confidence": pytest.approx(route.confidence)})


@pytest.mark.parametrize(
    ("text", "more", "target", "confidence", "rule", "message"),
    [
        ("@other", {}, "other", 1, "mention", "@other"),
        ("hello", {"agent": "THIRD"}, "third", 1, "named", "hello"),
        ("ask @other", {}, "other", 0.85, "mention", "ask @other"),
        ("hello", {}, "one", 0.5, "default", "hello"),
        ("hello", {"config": {"defaultRoute": "third"}}, "third", 0.5, "default", "hello"),
        ("hello", {"config": {"minConfidence": 0.5}}, "one", 0.5, "default", "hello"),
        ("hello", {"last_route": last("third")}, "third", 0.75, "remembered", "hello"),
        ("hello", {"last_route": last("third"), "snapshot_changed": True}, "third", 0.6, "remembered", "hello"),
        ("ask @third", {"last_route": last("third")}, "third", 0.75, "remembered", "ask @third"),
        ("ask @other", {"last_route": last("third")}, "other", 0.85, "mention", "ask @other"),
    ],
)
def test_how_sure_it_is(
    text: str, more: dict[str, object], target: str, confidence: float, rule: str, message: str
) -> None:
    route = routed(text, ONE, OTHER, THIRD, **more)
    assert (route.decision, route.target, route.confidence) == ("dispatch_agent", target, confidence)
    assert (route.rule, route.message) == (rule, message)


def test_the_default_provider_is_the_default_and_the_only_agent_is_taken() -> None:
    preferred = agent("preferred", provider="acp")
    assert routed("hello", ONE, preferred, config={"defaultProvider": "acp"}).target == "preferred"
    assert routed("hello", preferred, ONE, config={"defaultProvider": "other"}).target == "preferred"
    route = routed("docs", THIRD)
    assert (route.target, route.confidence, route.rule) == ("third", 0.9, "only")
    assert routed("hello", THIRD, BUSY).rule == "default"


@pytest.mark.parametrize(
    ("candidates", "text", "target"),
    [
        ((ONE, OTHER, THIRD), "let @other and @third", "other"),
        ((agent("one", "docs", load=0.55), agent("other", "docs", load=0.45)), "docs", "one"),
    ],
)
def test_who_wants_no_question_gets_the_first(candidates: tuple[Candidate, ...], text: str, target: str) -> None:
    route = routed(text, *candidates, config={"minConfidence": 0.3})
    assert (route.target, route.confidence) == (target, 0.3)


def test_who_is_to_be_asked_is_asked_however_little_is_enough() -> None:
    config: dict[str, object] = {"minConfidence": 0, "defaultRoute": "ask_human"}
    assert routed("hello", ONE, OTHER, config=config).options == ("one", "other")
    proposal = Classification(decision="ask_human", confidence=1)
    request = RouteRequest.model_validate({"text": "hello", "candidates": (ONE, OTHER), "config": {"minConfidence": 0}})
    assert decide(request, proposal).decision == "ask_human"
    config["minConfidence"] = 0.75
    sure = {"text": "hello", "candidates": (ONE, OTHER), "config": config, "last_route": last("other")}
    assert decide(RouteRequest.model_validate(sure), proposal).rule == "remembered"


WHY = "a classifier says: because"


@pytest.mark.parametrize(
    ("proposal", "route"),
    [
        (
            {"decision": "dispatch_agent", "target": "other", "confidence": 0.6, "reason": "because"},
            {"decision": "dispatch_agent", "target": "other", "confidence": 0.6, "reason": WHY, "message": "hello"},
        ),
        (
            {"decision": "dispatch_agent", "target": "other", "confidence": 0.6},
            {
                "decision": "dispatch_agent",
                "target": "other",
                "confidence": 0.6,
                "reason": "a classifier says so",
                "message": "hello",
            },
        ),
        (
            {"decision": "direct_reply", "confidence": 0.7, "reason": "because", "reply": "Hello."},
            {"decision": "direct_reply", "confidence": 0.7, "reason": WHY, "message": "Hello."},
        ),
        (
            {"decision": "reject", "confidence": 0.2, "reason": "because"},
            {"decision": "reject", "confidence": 0.2, "reason": WHY},
        ),
        (
            {"decision": "ask_human", "confidence": 0.9, "reason": "because"},
            question("classifier", 0, WHY, "one", "other").model_dump(),
        ),
        ({"decision": "direct_reply", "confidence": 0.7}, None),
        ({"decision": "dispatch_agent", "target": "busy", "confidence": 1}, None),
        ({"decision": "dispatch_module", "target": "jira", "confidence": 1}, None),
    ],
)
def test_what_a_classifier_proposes(proposal: dict[str, object], route: dict[str, object] | None) -> None:
    request = RouteRequest(text="hello", candidates=(ONE, OTHER, BUSY), modules=("jira",))
    decided = decide(request, Classification.model_validate(proposal))
    assert decided == (decide(request) if route is None else Route.model_validate({"rule": "classifier", **route}))


@pytest.mark.parametrize(
    ("text", "candidates", "more", "asked"),
    [
        ("docs", (ONE, OTHER), {}, True),
        ("docs", (ONE, THIRD), {}, False),
        ("hello", (ONE, THIRD), {}, True),
        ("hello", (ONE, THIRD), {"config": {"defaultRoute": "reject"}}, True),
        ("hello", (), {}, False),
        ("hello", (BUSY,), {}, False),
        ("/help", (ONE, THIRD), {}, False),
    ],
)
def test_whether_a_classifier_is_asked(
    text: str, candidates: tuple[Candidate, ...], more: dict[str, object], asked: bool
) -> None:
    request = RouteRequest.model_validate({"text": text, "candidates": candidates, **more})
    assert needs_classifier(request) is asked


def test_an_answer_is_one_of_the_options() -> None:
    request = RouteRequest(text="docs", candidates=(ONE, agent("Other")))
    for answer in ("1", "one", " @ONE "):
        assert answered(request, ("one", "Other"), answer) == Route(
            decision="dispatch_agent",
            target="one",
            confidence=1,
            reason="a person chose it",
            rule="answer",
            message="docs",
        )
    assert answered(request, ("one",), "other") is None
    assert [chosen_option(("one", "Other"), answer) for answer in ("1", " 2 ", "3", "0", "01", "Why?")] == [
        *("one", "Other", "3", "0", "01", "Why?")
    ]
    assert unanswerable() == rejected("answer", "after 3 questions it is still not clear who should do this")


def test_reasons_have_a_bound() -> None:
    long = "d" * 500
    for route in (
        routed("@a", agent("a", denied=long)),
        routed("hello", agent("a", denied=long)),
        routed("d" * 490, agent("one", "d" * 490), THIRD),
    ):
        assert len(route.reason) == 500
    assert len(routed("@" + "b" * 63, *(agent(f"{number:0>9}") for number in range(64))).reason) == 500
    modules = [f"{number:0>2}" for number in range(21)]
    assert routed("/hub x", ONE, modules=modules).reason.endswith(" there are: " + ", ".join(modules[:20]))
    assert routed("/hub x", ONE).reason == "there is no module 'x'; there are: none"
    assert repr("m" * 80) + ";" in routed("/hub " + "m" * 81, ONE).reason
    assert repr("n" * 80) + " here;" in routed("hello", ONE, agent="n" * 81).reason
    assert "did you mean 'other'?" in routed("@othr", ONE, OTHER).reason
    assert decide(RouteRequest(text="@a")).reason == "there is no agent 'a' here; there are: none"


def test_it_is_never_quite_sure_of_skills() -> None:
    assert routed("docs", ONE, THIRD).confidence == 0.95


def test_a_person_is_asked_about_so_many() -> None:
    route = routed("docs", *(agent(f"a{number}", "docs") for number in range(9)))
    assert route.options == tuple(f"a{number}" for number in range(8))

"""Routes, decided again by the router from the facts of then."""

from __future__ import annotations

from pydantic import ValidationError

from sublet.policy.decision import Action, Resource, Subject
from sublet.policy.rule_set import RuleSet
from sublet.protocol.events import Event
from sublet.supervisor.replay.basis import Basis
from sublet.supervisor.replay.steps import Facts
from sublet.supervisor.router.route import (
    MAX_TEXT_JOURNALLED,
    Asker,
    Classification,
    GivenAnswer,
    Route,
    RouteRequest,
)
from sublet.supervisor.router.rules import answered, decide, unanswerable

_COMPARED = ("decision", "target", "rule")


def recorded_route(event: Event) -> Facts:
    """Return what is compared of a route."""
    return {name: event.data.get(name) for name in _COMPARED}


def route_again(event: Event, basis: Basis) -> Facts | str:
    """Return what the router says now; or why it can't be asked."""
    if event.data.get("rule") == "guardrail":
        return "it came from an answer, which is judged by itself"
    try:
        facts = RouteRequest.model_validate(event.data.get("request"))
        kept, given = event.data.get("classified"), event.data.get("answer")
        classified = None if kept is None else Classification.model_validate(kept)
        answer = None if given is None else GivenAnswer.model_validate(given)
        asker = Asker.model_validate(event.data.get("asker"))
    except ValidationError:
        return "what is recorded can't be read"
    if len(facts.text) >= MAX_TEXT_JOURNALLED or (answer and len(answer.text) >= MAX_TEXT_JOURNALLED):
        return "what it was decided from was cut"
    if basis.current is not None:
        facts = _may_now(facts, asker, basis.current, event)
    route = _route(facts, classified, answer)
    return {"decision": route.decision, "target": route.target, "rule": route.rule}


def _route(facts: RouteRequest, classified: Classification | None, answer: GivenAnswer | None) -> Route:
    if answer is None:
        return decide(facts, classified)
    return answered(facts, answer.options, answer.text) or unanswerable()


def _may_now(facts: RouteRequest, asker: Asker, rules: RuleSet, event: Event) -> RouteRequest:
    """Return ``facts`` with the agents that the caller could have by ``rules``, at the time of then."""
    subject, action = Subject(asker.kind, asker.name, role=asker.role), Action(asker.action)
    candidates = []
    for one in facts.candidates:
        resource = Resource(one.agent_id, {"declared": False, "depth": 0})
        decision = rules.decide(subject, action, resource, now=asker.at)
        if decision.hidden:
            continue
        candidates.append(one.model_copy(update={"denied": "" if decision.allowed else decision.reason}))
    return facts.model_copy(update={"candidates": tuple(candidates)})

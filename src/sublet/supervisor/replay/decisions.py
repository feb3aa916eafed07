"""Decisions of policy and refusals by the chain, made again."""

from __future__ import annotations

import json

from sublet.policy.decision import Decision, Value
from sublet.policy.recorded import NotDecidable, RecordedDecision, decide_again, recorded_in
from sublet.policy.tool_calls import tool_resource
from sublet.protocol.chain import Chain, check_call
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.supervisor.replay.basis import Basis
from sublet.supervisor.replay.steps import Facts

_REFUSAL = EventKind.POLICY_REJECTED


def recorded_decision(event: Event) -> Facts:
    """Return what is compared of a decision of policy: what, by which rule, and the class of a refusal."""
    try:
        found = recorded_in(event.data)
    except ValueError:
        found = None
    said = {name: event.data.get(name) for name in ("layer", "rule")} if found is None else found.said
    return {**said, "code": event.data.get("code")} if event.kind is _REFUSAL else said


def decision_again(event: Event, basis: Basis) -> Facts | str:
    """Return what the rules say, those of then or of now; or why they can't be asked."""
    try:
        found = recorded_in(event.data)
        if found is None:
            return "what it was decided from is not recorded"
        rules = basis.rules(found.rules)
    except ValueError as error:
        return str(error)
    if rules is None:
        return "the rules of then are not kept any more"
    decision = decide_again(found, rules, _arguments(event, found))
    if isinstance(decision, NotDecidable):
        return decision.reason
    said: Facts = {"decision": decision.outcome, "layer": decision.layer, "rule": decision.rule}
    return {**said, "code": _code(decision)} if event.kind is _REFUSAL else said


def _code(decision: Decision) -> str | None:
    """Return the class of the refusal that this decision is."""
    if decision.allowed:
        return None
    return str(LocalCode.NOT_FOUND if decision.hidden else LocalCode.POLICY_DENIED)


def _arguments(event: Event, found: RecordedDecision) -> dict[str, Value] | None:
    """Return the arguments of a call as attributes, where the event shows all of them."""
    shown = event.data.get("arguments")
    if not isinstance(shown, str):
        return None
    try:
        arguments = json.loads(shown)
    except ValueError:
        return None
    return dict(tool_resource(found.resource, arguments).attributes) if isinstance(arguments, dict) else None


def chain_again(event: Event) -> Facts | str:
    """Return the class by which the chain refuses the call; or why that can't be told."""
    callers, depth = event.data.get("executionChain"), event.data.get("maxDepth")
    target, ttl = event.data.get("target"), event.data.get("ttl")
    if not isinstance(callers, list) or not isinstance(depth, int) or not isinstance(target, str):
        return "what it was decided from is not recorded"
    chain = Chain(tuple(str(one) for one in callers), "", float(ttl) if isinstance(ttl, int | float) else None)
    try:
        check_call(chain, target, max_depth=depth)
    except SubletError as error:
        return {"code": str(error.code)}
    return {"code": None}

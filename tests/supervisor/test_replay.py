"""Recorded routes decided again: equal, different, cut, out of order, and what can't be judged."""

from __future__ import annotations

from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import Event, EventKeys, EventKind
from sublet.supervisor.replay import MAX_TEXT_JOURNALLED, Answer, questions, replay
from sublet.supervisor.router.model import Candidate, RouteRequest
from sublet.supervisor.router.rules import decide


def decided(seq: int, text: str, *, cause: int | None = None, **changed: JsonValue) -> Event:
    """Return the event of a route as the supervisor records it, with ``changed`` fields."""
    facts = RouteRequest(text=text, candidates=(Candidate(agent_id="coder"), Candidate(agent_id="reviewer")))
    data: dict[str, JsonValue] = {
        **decide(facts).model_dump(mode="json", by_alias=True, exclude={"message"}),
        "request": facts.model_copy(update={"text": text[:MAX_TEXT_JOURNALLED]}).model_dump(mode="json", by_alias=True),
        "classified": None,
        **changed,
    }
    return event(seq, EventKind.ROUTE_DECIDED, data, cause)


def event(seq: int, kind: EventKind, data: dict[str, JsonValue], cause: int | None = None) -> Event:
    return Event(seq=seq, at="2026-01-01T00:00:00Z", kind=kind, keys=EventKeys(causation_id=cause), data=data)


def test_routes_and_refusals_are_decided_the_same_again() -> None:
    good, refused = replay([decided(1, "@coder write it"), decided(2, "/hub nowhere do it")])
    assert (good.result, good.replayed) == (
        "equal",
        {"decision": "dispatch_agent", "target": "coder", "rule": "mention"},
    )
    assert refused.result == "equal"
    assert refused.replayed is not None
    assert refused.replayed["decision"] == "reject"


def test_another_decision_is_told() -> None:
    (step,) = replay([decided(1, "@coder write it", target="reviewer")])
    assert step.result == "different"
    assert step.recorded is not None
    assert step.recorded["target"] == "reviewer"


def test_what_was_cut_is_never_equal() -> None:
    (step,) = replay([decided(1, "@coder " + "x" * MAX_TEXT_JOURNALLED)])
    assert (step.result, step.note, step.replayed) == ("not_replayable", "cut", None)


def test_what_can_not_be_judged_is_told() -> None:
    steps = replay(
        [
            decided(1, "@coder write it", rule="answer"),
            decided(2, "@coder write it", request={"unknown": 1}),
            event(3, EventKind.POLICY_REJECTED, {}),
            event(4, EventKind.SESSION_RESUMED, {}),
        ]
    )
    assert [(one.seq, one.result) for one in steps] == [(n, "not_replayable") for n in (1, 2, 3)]


def test_events_out_of_order_are_told() -> None:
    steps = replay([decided(5, "@coder a"), decided(3, "@coder b"), decided(6, "@coder c", cause=9)])
    assert [one.out_of_order for one in steps] == [False, True, True]
    assert [one.result for one in steps] == ["equal"] * 3


ASKED: dict[str, JsonValue] = {
    "subject": "agent:coder",
    "role": "",
    "action": "tool.call",
    "resource": "file.delete",
    "attributes": {"access_mode": "rw"},
}
REFUSED: dict[str, JsonValue] = {"asked": ASKED, "layer": "agent", "rule": "r", "code": "POLICY_DENIED"}


def test_what_policy_refused_is_asked_again_and_so_is_what_it_allowed() -> None:
    events = [event(1, EventKind.POLICY_REJECTED, REFUSED), event(2, EventKind.TOOL_CALL, {"asked": ASKED})]
    assert [(one.seq, one.resource, one.granted) for one in questions(events)] == [
        (1, "file.delete", False),
        (2, "file.delete", False),
    ]
    denied = Answer("deny", "agent", "r")
    assert [one.result for one in replay(events, {1: denied, 2: denied})] == ["equal", "different"]
    assert [one.result for one in replay(events, {1: Answer("deny", "agent", "other")})] == [
        "different",
        "not_replayable",
    ]


def test_chains_and_guardrails_are_held_against_what_was_recorded() -> None:
    chain: dict[str, JsonValue] = {
        "layer": "chain",
        "code": "LOOP_REFUSED",
        "target": "a@node-1",
        "executionChain": ["a@node-1"],
        "maxDepth": 4,
        "ttl": 5.0,
    }
    reply: dict[str, JsonValue] = {"class": "no_json", "reply": "none", "whole": True, "schema": {"type": "object"}}
    events = [
        event(1, EventKind.POLICY_REJECTED, chain),
        event(2, EventKind.POLICY_REJECTED, {**chain, "executionChain": []}),
        event(3, EventKind.GUARDRAIL_FAILED, reply),
        event(4, EventKind.GUARDRAIL_FAILED, {**reply, "reply": "{}"}),
        event(5, EventKind.GUARDRAIL_FAILED, {**reply, "whole": False}),
    ]
    assert [one.result for one in replay(events)] == ["equal", "different", "equal", "different", "not_replayable"]


def test_a_failure_has_the_class_of_what_it_came_from() -> None:
    failed: dict[str, JsonValue] = {"ok": False, "code": "TASK_FAILED", "end": "failed"}
    events = [
        event(1, EventKind.DISPATCH_RESULT, failed),
        event(2, EventKind.DISPATCH_RESULT, {**failed, "code": "INTERNAL"}),
        event(3, EventKind.DISPATCH_RESULT, {"ok": False, "code": "UNAVAILABLE"}),
        event(4, EventKind.POLICY_REJECTED, REFUSED),
        event(5, EventKind.DISPATCH_RESULT, {"ok": False, "code": "POLICY_DENIED"}),
    ]
    answers = {4: Answer("allow", "agent", "r")}
    assert [one.result for one in replay(events, answers)] == [
        "equal",
        "different",
        "not_replayable",
        "different",
        "different",
    ]

"""Recorded decisions made again: the same, different, by other rules, cut, shuffled, doubled, or not to be judged."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sublet.policy.decision import Resource
from sublet.policy.guardrail.mask import Mask
from sublet.policy.recorded import DECIDED, MAX_VALUE_CHARS
from sublet.policy.rule_set import RuleSet, rule_set_of
from sublet.protocol.canonical import JsonValue
from sublet.protocol.documents import unpacked
from sublet.protocol.events import Event, EventKind
from sublet.supervisor.replay.basis import digests_of
from sublet.supervisor.replay.session import NO_END, NOT_KNOWN, TWICE, replay
from sublet.supervisor.replay.steps import Step
from sublet.supervisor.router.route import MAX_TEXT_JOURNALLED, GivenAnswer
from support.budgets import examples
from support.recorded import CODER, Recording, a_session, rule_set

DENY: dict[str, JsonValue] = {"effect": "deny", "action": "tool.call", "resource": "file.read"}
ALLOW: dict[str, JsonValue] = {
    "effect": "allow",
    "action": "tool.call",
    "resource": "mail.send",
    "subject": {"kind": "agent"},
}


def results(made: Recording, current: RuleSet | None = None) -> list[str]:
    return [one.result for one in replay(made.events, made.basis(current))]


def test_all_of_a_session_is_decided_the_same_again() -> None:
    made = a_session()
    steps = replay(made.events, made.basis())
    assert {one.result for one in steps} == {"equal"}, steps
    assert [one.seq for one in steps] == [e.seq for e in made.events if e.kind != "session_created"]
    assert set(digests_of(made.events)) == set(made.documents)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("route_decided", "target", "reviewer"),
        ("guardrail_failed", "class", "ambiguous"),
        ("guardrail_failed", "then", "ask_human"),
        ("dispatch_result", "code", "INTERNAL"),
        ("policy_rejected", "code", "NOT_FOUND"),
    ],
)
def test_what_is_recorded_otherwise_is_different(kind: str, name: str, value: str) -> None:
    made = a_session()
    at = next(i for i, event in enumerate(made.events) if event.kind == kind)
    wrong = made.events[at]
    made.events[at] = wrong.model_copy(update={"data": {**wrong.data, name: value}})
    found = {one.seq: one.result for one in replay(made.events, made.basis())}
    assert found[wrong.seq] == "different"


def test_rules_of_then_decide_whatever_holds_now_unless_those_of_now_are_asked() -> None:
    made = a_session()
    now = rule_set(DENY, ALLOW)
    assert set(results(made)) == {"equal"}
    changed = [one for one in replay(made.events, made.basis(now)) if one.result == "different"]
    assert [(one.kind, one.recorded, one.replayed) for one in changed] == [
        (
            "tool_call",
            {"decision": "allow", "layer": "global", "rule": "default.agent.files"},
            {"decision": "deny", "layer": "global", "rule": "r0"},
        ),
        (
            "policy_rejected",
            {"decision": "deny", "layer": "global", "rule": "unmatched", "code": "POLICY_DENIED"},
            {"decision": "allow", "layer": "global", "rule": "r1", "code": None},
        ),
    ]


def test_an_agent_that_the_rules_of_now_deny_is_no_candidate() -> None:
    made = Recording()
    made.route("@coder write it")
    now = rule_set({"effect": "deny", "action": "agent.dispatch", "resource": "coder", "subject": {"kind": "human"}})
    (step,) = replay(made.events, made.basis(now))
    assert step.result == "different"
    assert step.replayed is not None
    assert step.replayed["decision"] == "reject"


def test_rules_are_read_back_as_they_were() -> None:
    rules = rule_set(
        {
            **DENY,
            "when": {"path": {"within": ["a", "b"]}, "args.n": {"min": 2, "max": 9}, "args.flag": True},
            "times": {"from": "22:00", "to": "06:00", "days": ["mon", "sun"], "zone": "Europe/Berlin"},
        },
        {"effect": "deny", "action": "tool.*", "hide": True, "when": {"args.c": {"any_of": ["1", 1, False]}}},
    )
    assert rules.document is not None
    again = rule_set_of(unpacked(rules.document))
    assert again.rules == rules.rules
    assert again.document == rules.document
    with pytest.raises(ValueError, match="no rules"):
        rule_set_of({"version": 2})


def test_only_what_the_rules_compare_of_a_call_is_recorded() -> None:
    rules = rule_set({**DENY, "resource": "shell.exec", "when": {"args.command": {"like": "rm *"}}})
    made = Recording(rules)
    event = made.tool("shell.exec", {"command": "rm -rf x", "password": "hunter2"})
    decided = event.data[DECIDED]
    assert isinstance(decided, dict)
    assert isinstance(decided["attributes"], dict)
    assert decided["attributes"]["args.command"] == "rm -rf x"
    assert decided["leftOut"] == 1
    assert "hunter2" not in str(event.data)
    assert results(made) == ["equal"]
    # Rules that ask for what is not there can't decide; for what is, they can.
    other = rule_set({**DENY, "resource": "shell.exec", "when": {"args.password": "hunter2"}})
    (step,) = replay(made.events, made.basis(other))
    assert (step.result, "args.password" in step.note) == ("not_replayable", True)
    assert results(made, rule_set(ALLOW)) == ["different"]


def test_arguments_that_the_event_shows_are_known_to_the_rules_of_now() -> None:
    made = Recording()
    shown = made.tool("file.read", {"path": "keys/a"})
    made.events[0] = shown.model_copy(update={"data": {**shown.data, "arguments": '{"path": "keys/a"}'}})
    now = rule_set({**DENY, "when": {"args.path": {"like": "keys/*"}}})
    assert results(made, now) == ["different"]
    assert results(made, rule_set({**DENY, "when": {"args.path": {"like": "other/*"}}})) == ["equal"]


def test_what_is_too_much_to_be_recorded_is_not_replayed() -> None:
    rules = rule_set({**DENY, "when": {"args.path": {"like": "x*"}}})
    made = Recording(rules)
    made.tool("file.read", {"path": "x" * (MAX_VALUE_CHARS + 1)})
    made.tool("file.read", {"path": "\ud800"})
    steps = replay(made.events, made.basis())
    assert [(one.result, "args.path" in one.note) for one in steps] == [("not_replayable", True)] * 2


def test_a_grant_counts_as_it_did() -> None:
    made = Recording(rule_set({"effect": "approval", "action": "tool.call", "resource": "shell.exec"}))
    for granted in (True, False):
        record = made.record(Resource("shell.exec"), granted=granted)
        kind = EventKind.TOOL_CALL if granted else EventKind.APPROVAL_REQUIRED
        made.add(kind, {DECIDED: record.data()}, keeps=record.documents)
    assert results(made) == ["equal", "equal"]
    first, second = replay(made.events, made.basis())
    assert (first.replayed or {})["decision"] == "allow"
    assert (second.replayed or {})["decision"] == "needs_grant"


def without_documents(made: Recording) -> None:
    made.documents.clear()


def damaged(made: Recording) -> None:
    made.documents = {digest: {"not": "this"} for digest in made.documents}


@pytest.mark.parametrize("spoil", [without_documents, damaged])
def test_what_is_not_kept_any_more_is_never_the_same(spoil: Callable[[Recording], None]) -> None:
    made = a_session()
    spoil(made)
    for one in replay(made.events, made.basis()):
        if one.kind in ("tool_call", "guardrail_failed", "dispatch_sent"):
            assert one.result == "not_replayable", one
            assert one.note


def test_a_person_s_answer_is_judged_by_what_there_was_to_choose() -> None:
    made = Recording()
    options = ("coder", "reviewer")
    made.route(
        "write",
        answer=GivenAnswer(text="2", options=options),
        rule="answer",
        decision="dispatch_agent",
        target="reviewer",
    )
    made.route("write", answer=GivenAnswer(text="who?", options=options), rule="answer", decision="reject", target="")
    made.route("write", answer=GivenAnswer(text="1", options=options), rule="answer", decision="reject", target="")
    assert results(made) == ["equal", "equal", "different"]


def test_what_was_cut_is_never_equal() -> None:
    made = Recording()
    made.route("@coder " + "x" * MAX_TEXT_JOURNALLED)
    (step,) = replay(made.events, made.basis())
    assert (step.result, step.replayed) == ("not_replayable", None)
    assert "cut" in step.note


def test_what_can_not_be_judged_is_told() -> None:
    made = Recording()
    made.route("@coder write it", request={"unknown": 1})
    made.add(EventKind.POLICY_REJECTED)
    made.add(EventKind.SESSION_RESUMED)
    made.add(EventKind.TOOL_CALL, {DECIDED: {"kind": "agent"}})
    made.add("of_tomorrow", {"x": 1})
    steps = replay(made.events, made.basis())
    assert [one.result for one in steps] == [*["not_replayable"] * 3, "unknown"]
    assert (steps[-1].kind, steps[-1].note) == ("of_tomorrow", NOT_KNOWN)


def test_a_reply_that_is_too_long_or_masked_away_is_not_replayed() -> None:
    made = Recording()
    sent = made.sent()
    made.failed_check("x" * 70_000, 1, "no_json", cause=sent)
    made.failed_check("secret: hunter2", 2, "no_json", cause=sent, mask=Mask(("/count",)))
    made.failed_check(
        '{"count": "n", "secret": "hunter2"}', 3, "invalid", cause=sent, mask=Mask(("/count",)), then="reject"
    )
    made.ended(sent, ok=False, code="GUARDRAIL_FAILED")
    steps = replay(made.events, made.basis())
    assert [one.result for one in steps] == ["equal", "not_replayable", "not_replayable", "equal", "equal"]
    assert "hunter2" not in str(made.events) + str(made.documents)


def test_the_class_of_a_failure_is_that_of_what_it_came_from() -> None:
    made = Recording(rule_set({"effect": "deny", "action": "agent.dispatch", "resource": "reviewer"}))
    outer = made.add(EventKind.DISPATCH_SENT)
    record = made.record(Resource("reviewer", {"declared": True, "depth": 1}))
    refusal: dict[str, JsonValue] = {"layer": "x", "rule": "y", "code": "POLICY_DENIED", DECIDED: record.data()}
    made.add(EventKind.POLICY_REJECTED, refusal, cause=outer, keeps=record.documents)
    made.ended(outer, ok=False, code="POLICY_DENIED")
    other = made.add(EventKind.DISPATCH_SENT)
    made.ended(other, ok=False, code="LEASE_OVER")
    third = made.add(EventKind.DISPATCH_SENT)
    made.ended(third, ok=False, code="GUARDRAIL_FAILED")
    fourth = made.add(EventKind.DISPATCH_SENT)
    made.ended(fourth, ok=False, code="OF_TOMORROW")
    found = {one.seq: one for one in replay(made.events, made.basis())}
    assert found[3].result == "equal"
    assert (found[5].result, found[5].replayed) == ("equal", {"code": "LEASE_OVER"})
    assert "taken as it was recorded" in found[5].note
    assert [found[7].result, found[9].result] == ["not_replayable"] * 2
    # A call that is told to have gone well although its last answer did not pass is a contradiction.
    made = a_session()
    at = next(i for i, event in enumerate(made.events) if event.data.get("code") == "GUARDRAIL_FAILED")
    made.events[at] = made.events[at].model_copy(update={"data": {"ok": True}})
    assert {one.seq: one.result for one in replay(made.events, made.basis())}[made.events[at].seq] == "different"


def test_a_call_that_nobody_saw_end_is_told() -> None:
    made = Recording()
    made.sent()
    (step,) = replay(made.events, made.basis())
    assert (step.result, step.note) == ("equal", NO_END)


def test_missing_events_are_told_by_what_follows_from_them() -> None:
    made = a_session()
    sent = made.events[2]
    kept = [one for one in made.events if one is not sent and one.data.get("attempt") != 1]
    found = replay(kept, made.basis())
    assert {one.missing for one in found if one.kind in ("tool_call", "guardrail_failed")} == {sent.seq}
    assert [one.note for one in found if one.kind == "guardrail_failed"] == [
        "of 1 attempts before, 0 are there",
        "of 2 attempts before, 1 are there",
    ]


def plain(steps: tuple[Step, ...]) -> list[tuple[int, str, str]]:
    return [(one.seq, one.result, one.note) for one in steps]


@settings(max_examples=examples(20), deadline=None)
@given(seed=st.integers(0, 2**32), doubled=st.lists(st.integers(0, 12), max_size=8))
def test_however_a_log_is_shuffled_and_doubled_it_says_the_same(seed: int, doubled: list[int]) -> None:
    made = a_session()
    wanted = plain(replay(made.events, made.basis()))
    given_log = [*made.events, *(made.events[n] for n in doubled)]
    random.Random(seed).shuffle(given_log)
    steps = replay(given_log, made.basis())
    assert plain(steps) == wanted
    assert {one.seq: one.copies for one in steps if one.copies} == {
        seq: copies for seq in {one.seq for one in steps} if (copies := sum(made.events[n].seq == seq for n in doubled))
    }
    first_seen = list(dict.fromkeys(event.seq for event in given_log))
    late = {seq for at, seq in enumerate(first_seen) if any(before > seq for before in first_seen[:at])}
    assert {one.seq for one in steps if one.out_of_order} == late & {one.seq for one in steps}


def test_a_cause_that_comes_later_is_out_of_order() -> None:
    made = Recording()
    made.tool("file.read", {})
    made.events[0] = made.events[0].model_copy(
        update={"keys": made.events[0].keys.model_copy(update={"causation_id": 9})}
    )
    (step,) = replay(made.events, made.basis())
    assert (step.out_of_order, step.missing) == (True, 9)


def test_two_events_of_one_number_are_believed_neither() -> None:
    made = a_session()
    other: Event = made.events[1].model_copy(update={"data": {**made.events[1].data, "target": "reviewer"}})
    steps = replay([*made.events, other], made.basis())
    assert [(one.result, one.note) for one in steps if one.seq == other.seq] == [("not_replayable", TWICE)]


def test_who_decides_is_known_by_role_as_well() -> None:
    made = Recording()
    made.tool("file.read", {})
    now = rule_set({**DENY, "subject": {"kind": "agent", "role": CODER.role}})
    assert results(made, now) == ["different"]

"""``sublet replay``: its exit status, what it asks for and what it prints."""

from __future__ import annotations

import json

import pytest

from sublet.cli.app import run
from sublet.daemon.api.replays import ReplayStep, ReplayView
from support.fake_control import FakeControl
from support.fake_supervisor import a_session

SESSION = "ses_" + "1" * 26
SAME = ReplayStep(
    seq=7,
    kind="route_decided",
    result="equal",
    recorded={"decision": "dispatch_agent", "target": "coder", "rule": "mention"},
    replayed={"decision": "dispatch_agent", "target": "coder", "rule": "mention"},
)
OTHER = ReplayStep(
    seq=9,
    kind="tool_call",
    result="different",
    recorded={"decision": "allow", "layer": "global", "rule": "r1"},
    replayed={"decision": "deny", "layer": "role", "rule": "no\x1b[31mshell"},
    out_of_order=True,
    copies=1,
    missing=3,
)
CUT = ReplayStep(seq=11, kind="guardrail_failed", result="not_replayable", note="the reply was too long to be kept")
NEW = ReplayStep(seq=12, kind="of_tomorrow", result="unknown", note="not known here, left out")


def replayed(*steps: ReplayStep) -> FakeControl:
    fake = FakeControl()
    fake.asking.sessions = [a_session(SESSION)]
    equal = all(one.result == "equal" for one in steps)
    fake.replayed = ReplayView(session=SESSION, rules="recorded", events=20, equal=equal, steps=list(steps))
    return fake


def test_all_the_same_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    control = replayed(SAME)
    assert run(["replay", "last"], session=control.session()) == 0
    assert {"replay": SESSION, "current": False} in control.requests
    line, summary = capsys.readouterr().out.splitlines()
    assert line.split() == ["7", "route_decided", "same", "dispatch_agent", "coder", "rule", "mention"]
    assert summary == "1 decisions, by the rules of then: 1 same"


@pytest.mark.parametrize("step", [OTHER, CUT, NEW])
def test_anything_else_is_1(step: ReplayStep, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", SESSION, "--json"], session=replayed(SAME, step).session()) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] is False
    assert found["steps"][1] == step.model_dump(mode="json")


def test_people_see_what_became_of_what_and_what_is_wrong_with_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    control = replayed(SAME, OTHER, CUT, NEW)
    assert run(["replay", "--with-current", SESSION], session=control.session()) == 1
    assert control.requests == [{"replay": SESSION, "current": True}]
    out = " ".join(capsys.readouterr().out.split())
    assert "\x1b" not in out
    for shown in (
        "tool_call different allow layer global rule r1",
        "deny layer role",
        "it stood out of order; it stood there 2 times; event 3, which it follows from, is missing",
        "cannot be replayed - (the reply was too long to be kept)",
        "not known here, left out",
        "4 decisions, by the rules of then: 1 same, 1 different, 1 cannot be replayed, 1 not known",
    ):
        assert shown in out


def test_a_session_that_is_deleted_is_replayed_by_its_whole_id(capsys: pytest.CaptureFixture[str]) -> None:
    control = replayed(SAME)
    control.asking.sessions = []
    assert run(["replay", SESSION], session=control.session()) == 0
    assert run(["replay", "last"], session=control.session()) != 0
    assert control.requests == [{"replay": SESSION, "current": False}]
    assert "NOT_FOUND" in capsys.readouterr().err

"""``sublet replay``: its exit status and what it prints."""

from __future__ import annotations

import json

import pytest

from sublet.cli.app import run
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import Event, EventKeys, EventKind
from sublet.supervisor.router.model import Candidate, RouteRequest
from support.fake_control import FakeControl
from support.fake_supervisor import a_session

SESSION = "ses_" + "1" * 26


def recorded(target: str) -> FakeControl:
    fake = FakeControl()
    fake.supervisor.sessions = [a_session(SESSION)]
    facts = RouteRequest(text="@coder write it", candidates=(Candidate(agent_id="coder"), Candidate(agent_id="other")))
    data: dict[str, JsonValue] = {
        "decision": "dispatch_agent",
        "target": target,
        "rule": "mention",
        "request": facts.model_dump(mode="json", by_alias=True),
        "classified": None,
    }
    fake.events = [
        Event(
            seq=7,
            at="2026-01-01T00:00:00Z",
            kind=EventKind.ROUTE_DECIDED,
            keys=EventKeys(finger_session_id=SESSION),
            data=data,
        )
    ]
    return fake


def test_equal_is_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", SESSION], session=recorded("coder").session()) == 0
    assert capsys.readouterr().out.split() == ["7", "route_decided", "equal"]


def test_different_is_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["replay", SESSION, "--json"], session=recorded("other").session()) == 1
    (step,) = json.loads(capsys.readouterr().out)["steps"]
    assert (step["result"], step["recorded"]["target"], step["replayed"]["target"]) == ("different", "other", "coder")

"""``sublet events``: what it prints, and what it asks the daemon for."""

from __future__ import annotations

import json

import pytest

from sublet.cli.app import run
from sublet.protocol.events import Event, EventKeys, EventKind
from support.fake_control import FakeControl

SESSION = "ses_" + "1" * 26


@pytest.fixture
def control() -> FakeControl:
    fake = FakeControl()
    fake.events = [
        Event(
            seq=7,
            at="2026-01-01T00:00:00Z",
            kind=EventKind.ROUTE_DECIDED,
            keys=EventKeys(finger_session_id=SESSION, request_id="req_1", route_decision="reject"),
            data={"reason": "no\x1b[31m agent\u202e fits", "request": {"text": "long"}},
        ),
        Event(
            seq=9,
            at="2026-01-01T00:00:01Z",
            kind=EventKind.TOOL_CALL,
            keys=EventKeys(agent_id="coder", causation_id=7),
            data={"tool": "shell.exec"},
        ),
    ]
    return fake


def test_people_get_a_line_for_each(control: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["events"], session=control.session()) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "7"
    assert all(shown in first for shown in ("route_decided", SESSION[:12]))
    assert not any(hidden in first for hidden in ("\x1b", "\u202e", "request"))
    assert "coder  (after 7)  tool shell.exec" in second


def test_scripts_get_an_object_for_each_after_a_cursor(
    control: FakeControl, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["events", "--json", "--since", "7"], session=control.session()) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["seq"], found["kind"], found["keys"]["causationId"]) == (9, "tool_call", 7)


def test_a_kind_chooses(control: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["events", "--kind", "tool_call", "--json"], session=control.session()) == 0
    assert [json.loads(line)["seq"] for line in capsys.readouterr().out.splitlines()] == [9]


def test_an_unknown_kind_is_refused(control: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["events", "--kind", "tool\x1bcall"], session=control.session()) == 2
    assert "no kind of event" in capsys.readouterr().err


def test_what_comes_is_followed_until_the_daemon_goes(control: FakeControl, capsys: pytest.CaptureFixture[str]) -> None:
    control.coming = [*control.events, control.events[1].model_copy(update={"seq": 12})]
    assert run(["events", "--follow", "--json", "--kind", "tool_call"], session=control.session()) != 0
    *told, ended = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["seq"] for one in told] == [9, 12]
    assert ended["error"]["code"] == "DAEMON_UNAVAILABLE"

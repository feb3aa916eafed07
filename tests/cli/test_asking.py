"""Asking and sessions on the command line: words for people, one object for scripts, and the right status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sublet.cli.app import run
from sublet.daemon.api.sessions import AskAnswer, AskBegun, AskOutput, LocalAgentView, MessageView
from sublet.protocol.errors import ErrorCode, SubletError
from support.fake_control import FakeControl
from support.fake_supervisor import a_session

BEGUN = AskBegun(finger_session_id="ses_1", request_id="req_1")


def answer(**more: object) -> AskAnswer:
    return AskAnswer.model_validate(
        {
            "fingerSessionId": "ses_1",
            "requestId": "req_1",
            "routeDecision": "dispatch_agent",
            "target": "coder",
            "agentId": "coder",
            "result": "done",
            "reason": "it fits",
            **more,
        }
    )


def asked(control: FakeControl, *argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    status = run(["ask", *argv], session=control.session())
    out, err = capsys.readouterr()
    return status, out, err


def test_what_is_said_comes_as_it_is_said_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()
    control.asking.updates = [
        BEGUN,
        AskOutput(stream="stdout", text="one "),
        AskOutput(stream="stderr", text="[debug]"),
        AskOutput(stream="note", text=""),
        AskOutput(stream="stdout", text="two\x1b[31m"),
        answer(result="one two", warnings=["a session was lost"]),
    ]
    status, out, err = asked(control, "do it", capsys=capsys)
    assert (status, out) == (0, "one two\n")
    assert "[debug]" in err
    assert "Note: a session was lost" in err
    assert "session ses_1" in err
    assert control.asking.asked[0].text == "do it"


def test_one_object_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()
    control.asking.updates = [BEGUN, AskOutput(stream="stdout", text="x"), answer()]
    status, out, err = asked(control, "do it", "--json", capsys=capsys)
    found: dict[str, Any] = json.loads(out)
    assert (status, err) == (0, "")
    assert {key: found[key] for key in ("routeDecision", "requestId", "fingerSessionId", "result")} == {
        "routeDecision": "dispatch_agent",
        "requestId": "req_1",
        "fingerSessionId": "ses_1",
        "result": "done",
    }


@pytest.mark.parametrize(
    ("more", "status", "says"),
    [
        ({"routeDecision": "reject", "result": None, "agentId": None, "reason": "nothing fits"}, 5, "nothing fits"),
        (
            {"routeDecision": "ask_human", "result": None, "question": "Which agent? 1 a, 2 b", "options": ["a", "b"]},
            9,
            "sublet answer ses_1 TEXT",
        ),
    ],
)
def test_no_answer_has_a_status_of_its_own(
    more: dict[str, object], status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    control = FakeControl()
    control.asking.updates = [BEGUN, answer(**more)]
    left, out, err = asked(control, "do it", capsys=capsys)
    assert left == status
    assert says in out + err
    left, out, _ = asked(control, "do it", "--json", capsys=capsys)
    assert left == status
    assert json.loads(out)["routeDecision"] == more["routeDecision"]


def test_a_failure_keeps_the_ids(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()
    control.asking.updates = [BEGUN]
    control.asking.failure = SubletError(ErrorCode.TASK_FAILED, "it broke", "mend it")
    status, out, _ = asked(control, "do it", "--json", capsys=capsys)
    found = json.loads(out)
    assert (status, found["requestId"], found["error"]["code"]) == (1, "req_1", "TASK_FAILED")
    assert found["routeDecision"] is None
    control.asking.sessions = [a_session("ses_1")]
    said = [("req_0", "reject"), ("req_1", None), ("req_1", "dispatch_agent")]
    control.asking.said = [
        MessageView.model_validate({"at": "", "role": "note", "text": "", "requestId": one, "routeDecision": decision})
        for one, decision in said
    ]
    _, out, _ = asked(control, "do it", "--json", capsys=capsys)
    assert json.loads(out)["routeDecision"] == "dispatch_agent"
    status, out, err = asked(control, "do it", capsys=capsys)
    assert (status, out) == (1, "")
    assert "it broke" in err


def test_sessions_are_found_by_their_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()
    control.asking.sessions = [a_session("ses_abc"), a_session("ses_abd"), a_session("f-1")]
    control.asking.updates = [BEGUN, answer()]
    for given, found in (("last", "ses_abc"), ("abd", "ses_abd"), ("f-1", "f-1"), ("ses_abc", "ses_abc")):
        assert asked(control, "x", "--session", given, capsys=capsys)[0] == 0
        assert control.asking.asked[-1].session_id == found
    assert asked(control, "x", "--session", "ab", capsys=capsys)[0] == 2
    assert asked(control, "x", "--session", "nope", capsys=capsys)[0] == 1
    assert run(["answer", "last", "2"], session=control.session()) == 0
    assert (control.asking.asked[-1].answer, control.asking.asked[-1].text) == (True, "2")
    assert asked(control, "--session", "last", "--answer", "b", capsys=capsys)[0] == 0
    assert control.asking.asked[-1].answer
    assert asked(control, "--answer", "b", capsys=capsys)[0] == 2
    assert asked(control, capsys=capsys)[0] == 2


def test_a_session_is_changed_by_its_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()
    control.asking.sessions = [a_session("ses_abc", question="Which?", options=["a"])]
    for verb, effect in (("pause", "paused"), ("complete", "completed"), ("resume", "active"), ("delete", "delete")):
        assert run(["sessions", verb, "last"], session=control.session()) == 0
        assert control.asking.changes[-1] == ("ses_abc", effect)
    assert run(["sessions", "show", "last", "--messages", "3"], session=control.session()) == 0
    assert control.asking.changes[-1] == ("ses_abc", "show 3")
    out, _ = capsys.readouterr()
    assert "waits    Which?" in out
    assert run(["sessions", "list"], session=control.session()) == 0
    assert "asks" in capsys.readouterr().out
    assert run(["sessions", "create", "a plan", "--json"], session=control.session()) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "a plan"


def test_agents_are_listed_with_why_not(capsys: pytest.CaptureFixture[str]) -> None:
    control = FakeControl()
    control.asking.agents = [
        LocalAgentView(agent_id="coder", role="executor", provider="acp", skills=["Code"], running=1),
        LocalAgentView(agent_id="other", role="executor", provider="acp", denied="a rule says so"),
        LocalAgentView(agent_id="broken", role="executor", provider="acp", ok=False, detail="no such program"),
    ]
    assert run(["agents"], session=control.session()) == 0
    out = capsys.readouterr().out
    assert "works (1)" in out
    assert "not for you: a rule says so" in out
    assert "no such program" in out

"""What events hold of calls that passed a gate: bounded and clean, whatever an agent or a host has written."""

from __future__ import annotations

import pytest

from sublet.daemon.approvals.called_events import (
    MAX_ARGUMENTS_CHARS,
    MAX_CALL_ID_CHARS,
    MAX_ERROR_CHARS,
    MAX_PATHS,
    MAX_TOOL_CHARS,
    begun,
    call_name,
    ended,
    path_names,
)
from sublet.policy.decision import Action, Decision, Resource, Subject
from sublet.policy.limits import Limits
from sublet.policy.recorded import DECIDED, Record
from sublet.policy.rule_set import RuleSet
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind

RECORD = Record(
    RuleSet((), Limits()),
    Subject("agent", "coder"),
    Action.TOOL_CALL,
    Resource("shell.exec", {}),
    granted=False,
    at=0.0,
    decision=Decision(True, "global", "r", "a rule allows it"),
)
LONG = "x" * 10_000


def test_arguments_are_told_as_long_as_they_fit_and_their_digest_always() -> None:
    short = begun("shell.exec", "d", "{}", RECORD)
    assert (short["tool"], short["digest"], short["arguments"]) == ("shell.exec", "d", "{}")
    assert DECIDED in short
    assert begun("t", "d", "y" * MAX_ARGUMENTS_CHARS, RECORD)["arguments"] == "y" * MAX_ARGUMENTS_CHARS
    assert "arguments" not in begun("t", "d", "y" * (MAX_ARGUMENTS_CHARS + 1), RECORD)


def test_names_and_errors_are_bounded_and_hold_no_control_characters() -> None:
    assert len(str(begun(LONG, "d", "{}", RECORD)["tool"])) <= MAX_TOOL_CHARS
    assert len(call_name(LONG)) <= MAX_CALL_ID_CHARS
    _, told = ended(f"\x1b[31m{LONG}")
    assert len(str(told["error"])) <= MAX_ERROR_CHARS
    assert "\x1b" not in str(told["error"])
    assert path_names(["a\x07"] * (MAX_PATHS + 1)) == path_names(["a\x07"] * MAX_PATHS)
    assert "\x07" not in str(path_names(["a\x07"]))


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (None, {}),
        ({}, {}),
        ({"exit_code": 0}, {"result": {"exit_code": 0}}),
        ({"text": "z" * MAX_ARGUMENTS_CHARS}, {"result": None}),
    ],
)
def test_a_result_is_told_as_long_as_it_fits(result: dict[str, JsonValue] | None, told: dict[str, object]) -> None:
    assert ended(None, result) == (EventKind.TOOL_RESULT, told)
    assert ended("it failed", result) == (EventKind.TOOL_ERROR, {"error": "it failed"})

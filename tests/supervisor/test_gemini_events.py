"""What Gemini prints as events, as it is told: lines of work, and an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sublet.supervisor import gemini_events
from sublet.supervisor.gemini_events import MAX_CALLS, GeminiEvents


def line(kind: str, **event: Any) -> bytes:
    return json.dumps({"type": kind, "timestamp": "2026-11-29T21:00:00.000Z", **event}).encode() + b"\n"


def say(text: str) -> bytes:
    return line("message", role="assistant", content=text, delta=True)


def use(name: str, number: int = 1, **parameters: Any) -> bytes:
    return line("tool_use", tool_name=name, tool_id=f"t{number}", parameters=parameters)


def told(*lines: bytes) -> tuple[str, list[str], str | None]:
    notes: list[str] = []
    events = GeminiEvents(notes.append)
    said = b"".join(map(events.feed, lines)) + events.feed(b"", final=True)
    return said.decode(), notes, events.last_word


def test_tools_are_notes_and_words_are_said() -> None:
    said, notes, answer = told(
        line("init", session_id="s", model="m"),
        line("message", role="user", content="Make it work."),
        say("I look"),
        say(" first."),
        use("run_shell_command", command="make test", description="tests"),
        line("tool_result", tool_id="t1", status="success", output="a secret"),
        use("write_file", 2, file_path="a.md", content="x"),
        line("tool_result", tool_id="t2", status="error", error={"message": "no"}),
        say("Done: é"),
        line("result", status="success", stats={}),
    )
    assert said == "I look first.\nDone: é\n"
    assert notes == ["tool: run_shell_command make test", "tool: write_file a.md", "failed: write_file a.md"]
    assert answer == "Done: é"


def test_an_error_says_why() -> None:
    said, _, answer = told(
        say("half"),
        line("error", severity="warning", message="Loop detected"),
        line("result", status="error", error={"type": "X", "message": "Quota is over"}),
    )
    assert (said, answer) == ("half\nLoop detected\nQuota is over\n", "half")


@pytest.mark.parametrize(
    "event",
    [
        line("message", role="assistant", content=5),
        line("message", role="user", content="x"),
        line("tool_result", tool_id="t9", status="success"),
        line("result", status="error", error="x"),
        line("error"),
        line("new_kind", content="x"),
    ],
)
def test_a_strange_event_breaks_nothing(event: bytes) -> None:
    assert told(event) == ("", [], None)


def test_a_strange_call_is_told_in_a_line() -> None:
    assert told(line("tool_use", parameters=[1]))[1] == ["tool: None"]
    assert told(line("tool_result", tool_id="t9", status="error"))[1] == ["failed: a tool"]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemini_events, "MAX_ANSWER_CHARS", 5)
    events = GeminiEvents(lambda _: None)
    for number in range(MAX_CALLS + 5):
        events.feed(use("x", number))
    events.feed(say("a long answer") + say("!"))
    assert events.last_word == "swer!"
    assert len(events._calls) == MAX_CALLS

"""What Claude Code prints as events, as it is told: lines of work, and an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sublet.supervisor import event_lines
from sublet.supervisor.claude_events import ClaudeEvents
from sublet.supervisor.tool_words import subject_of, tool_line


def line(**event: Any) -> bytes:
    return json.dumps(event).encode() + b"\n"


def said(*blocks: dict[str, Any]) -> bytes:
    return line(type="assistant", message={"content": list(blocks)})


RUN = b"".join(
    (
        line(type="system", subtype="init", tools=["Bash"], cwd="/x"),
        said(
            {"type": "text", "text": "I look first."}, {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}
        ),
        line(type="user", message={"content": [{"type": "tool_result", "content": "a secret"}]}),
        said({"type": "tool_use", "name": "Edit", "input": {"file_path": "src/a.py", "old_string": "x"}}),
        said({"type": "text", "text": "Done: é"}),
        line(type="result", subtype="success", result="Done: é"),
    )
)


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_tools_are_notes_and_words_are_said(size: int) -> None:
    notes: list[str] = []
    events = ClaudeEvents(notes.append)
    told = b"".join(events.feed(RUN[at : at + size]) for at in range(0, len(RUN), size))
    told += events.feed(b"", final=True)
    assert told.decode() == "I look first.\nDone: é\n"
    assert notes == ["tool: Bash ls", "tool: Edit src/a.py"]
    assert events.last_word == "Done: é"


def test_what_is_no_event_is_told_as_it_stands() -> None:
    events = ClaudeEvents(lambda _: None)
    text = b'plain words\n{"no": "type"}\n{broken\nhalf a line'
    assert events.feed(text) + events.feed(b"", final=True) == text
    assert events.last_word is None


def test_an_error_says_why() -> None:
    notes: list[str] = []
    events = ClaudeEvents(notes.append)
    assert events.feed(line(type="result", subtype="success", is_error=True, result="API Error: 500")) == (
        b"API Error: 500\n"
    )
    assert events.feed(line(type="result", subtype="error_max_turns")) == b""
    assert notes == ['ended: "error_max_turns"']


@pytest.mark.parametrize(
    "event",
    [
        {"type": "assistant"},
        {"type": "assistant", "message": []},
        {"type": "assistant", "message": {"content": "text"}},
        {"type": "assistant", "message": {"content": [1, {"type": "text"}, {"type": "text", "text": 5}]}},
        {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": None, "input": [1]}]}},
        {"type": "result", "result": {"a": 1}},
    ],
)
def test_a_strange_event_breaks_nothing(event: dict[str, Any]) -> None:
    assert ClaudeEvents(lambda _: None).feed(line(**event)) == b""


def test_an_event_that_is_too_long_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_lines, "MAX_LINE_BYTES", 100)
    notes: list[str] = []
    events = ClaudeEvents(notes.append)
    told = b"".join(events.feed(part) for part in (b"x" * 90, b"x" * 90, b"x\nshort\n"))
    assert told == b"short\n"
    assert len(notes) == 1


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("Bash", {"command": "make test", "description": "tests"}, "Bash make test"),
        ("shell", {"command": ["sh", "-c", "ls"]}, "shell ls"),
        ("shell", {"command": ["ls", "-l"]}, "shell ls -l"),
        ("shell", {"command": "/bin/bash -lc 'make test'"}, "shell make test"),
        ("shell", {"command": "it's broken"}, "shell it's broken"),
        ("Read", {"file_path": "/w/src/a.py"}, "Read src/a.py"),
        ("Grep", {"pattern": "x", "path": "/w/src"}, "Grep src"),
        ("Todo", {"n": 1}, 'Todo {"n": 1}'),
        ("Odd\x1b[31m\nname", {}, None),
        ("Bash", {"command": "a\nb"}, "Bash a b"),
    ],
)
def test_a_call_in_one_line(name: str, given: dict[str, Any], told: str | None) -> None:
    found = tool_line(name, given, "/w")
    assert "\n" not in found
    assert "\x1b" not in found
    assert told is None or found == told


def test_long_arguments_are_cut() -> None:
    assert len(tool_line("Bash", {"command": "x" * 10_000})) <= 240
    assert subject_of({"n": "x" * 10_000}) == ""

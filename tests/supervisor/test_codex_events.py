"""What Codex prints as events, as it is told: lines of work, and an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sublet.supervisor.codex_events import MAX_CALLS, CodexEvents


def line(kind: str, **event: Any) -> bytes:
    return json.dumps({"type": kind, **event}).encode() + b"\n"


def item(kind: str, state: str = "completed", number: int = 1, **fields: Any) -> bytes:
    return line(f"item.{state}", item={"id": f"item_{number}", "type": kind, **fields})


def steps(*done: bool) -> list[dict[str, Any]]:
    return [{"text": text, "completed": one} for text, one in zip(("Write", "Test"), done, strict=True)]


def told(*lines: bytes) -> tuple[str, list[str], str | None]:
    notes: list[str] = []
    events = CodexEvents(notes.append)
    said = b"".join(map(events.feed, lines)) + events.feed(b"", final=True)
    return said.decode(), notes, events.last_word


def test_tools_are_notes_and_words_are_said() -> None:
    run = (
        line("thread.started", thread_id="t"),
        line("turn.started"),
        item("reasoning", text="**Thinking** hard"),
        item("agent_message", text="I look first."),
        item("command_execution", "started", 2, command="make test", status="in_progress"),
        item("command_execution", "updated", 2, command="make test", status="in_progress"),
        item("command_execution", number=2, command="make test", exit_code=2, status="failed"),
        item("file_change", number=3, changes=[{"path": "a.py", "kind": "add"}, {"path": "b.py", "kind": "update"}]),
        item("mcp_tool_call", "started", 4, server="sublet", tool="ask_human", arguments={"prompt": "Which?"}),
        item("web_search", number=5, query="how to"),
        item("todo_list", "started", 6, items=steps(True, False)),
        item("todo_list", "updated", 6, items=steps(True, False)),
        item("todo_list", number=6, items=steps(True, True)),
        item("agent_message", number=7, text="Done: é"),
        line("turn.completed", usage={"input_tokens": 1}),
    )  # fmt: skip
    said, notes, answer = told(*run)
    assert said == "I look first.\nDone: é\n"
    assert notes == [
        "tool: shell make test",
        "failed: shell make test",
        "tool: edit a.py, b.py",
        "tool: sublet.ask_human Which?",
        "tool: search how to",
        "plan: 1 of 2 done; now: Test",
        "plan: 2 of 2 done",
    ]
    assert answer == "Done: é"


def test_an_error_says_why() -> None:
    said, notes, answer = told(
        line("error", message="Reconnecting... 1/5"),
        item("error", message="a warning"),
        line("turn.failed", error={"message": "stream disconnected"}),
    )
    assert (said, notes, answer) == ("Reconnecting... 1/5\na warning\nstream disconnected\n", [], None)


@pytest.mark.parametrize(
    "event",
    [
        line("item.completed"),
        line("item.completed", item=[]),
        item("agent_message", text=5),
        item("agent_message", "started", text="half"),
        item("todo_list", items="x"),
        item("todo_list", items=[1]),
        item("new_kind", text="x"),
        line("turn.failed", error="x"),
        line("turn.failed"),
    ],
)
def test_a_strange_event_breaks_nothing(event: bytes) -> None:
    assert told(event) == ("", [], None)


@pytest.mark.parametrize(
    "event",
    [item("file_change", changes=5), item("mcp_tool_call", arguments=[1]), item("command_execution", command=["a", 1])],
)
def test_a_strange_call_is_told_in_a_line(event: bytes) -> None:
    said, notes, _ = told(event)
    assert said == ""
    assert [note.startswith("tool: ") for note in notes] == [True]


def test_calls_that_never_end_are_forgotten() -> None:
    events = CodexEvents(lambda _: None)
    for number in range(MAX_CALLS + 5):
        events.feed(item("command_execution", "started", number, command="x"))
    assert len(events._begun) == MAX_CALLS

"""What agents' programs, hosts and plain A2A clients say: read in linear work, within bounds, and survived."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from a2a.types import Artifact, Message, Part, Task

from attacks.kit.as_probe import throwing
from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe
from mcp_server import test_obedient_model
from sublet.a2a_wire.parts import ANSWER_ARTIFACT, join_answer, message_text
from sublet.protocol.errors import SubletError
from sublet.supervisor.claude_events import ClaudeEvents
from sublet.supervisor.event_lines import MAX_LINE_BYTES
from sublet.supervisor.output import Translated
from sublet.supervisor.tool_words import tool_line
from sublet.supervisor.well_known import adding


def _events(size: int) -> bytes:
    block = {"type": "tool_use", "name": "Bash", "input": {"command": "x" * 40}}
    line = json.dumps({"type": "assistant", "message": {"content": [block] * 4}}).encode() + b"\n"
    return line * (size // len(line) + 1)


def _fed(data: bytes) -> object:
    said = Translated("stdout", lambda _: None, ClaudeEvents)
    for at in range(0, len(data), 64):
        said.feed(data[at : at + 64])
    return said


def _message(size: int) -> Message:
    return Message(parts=[Part(text="x" * 20), Part(raw=b"y" * 20, media_type="text/plain")] * (size // 40))


def _answer(size: int) -> Task:
    parts = [Part(text="x" * 20)] * (size // 20)
    return Task(artifacts=[Artifact(artifact_id=ANSWER_ARTIFACT, parts=parts)])


@contextmanager
def _endless_line() -> Iterator[object]:
    """Let a program print one line without an end."""
    events = ClaudeEvents(lambda _: None)
    piece = b"x" * (1 << 20)
    for _ in range(64):
        events.feed(piece)
    yield events
    events.feed(b"\n")


async def _full_disk() -> None:
    """Have no room for another agent.json; the one that is there stays."""
    with tempfile.TemporaryDirectory(prefix="agents") as base:
        path = Path(base) / "agent.json"
        adding.add_agent(path, "shell", "one", default=False)
        before = path.read_bytes()
        with (
            mock.patch.object(adding, "write_durably", side_effect=OSError(28, "No space left on device")),
            pytest.raises(SubletError, match="No space left"),
        ):
            adding.add_agent(path, "claude", "two", default=False)
        assert path.read_bytes() == before


PROBES: Sequence[Probe] = (
    CostProbe(
        name="agents: events in small pieces",
        covers=("supervisor.event_lines:EventLines.feed", "supervisor.output:Translated.feed"),
        make=_events,
        run=_fed,
    ),
    CostProbe(
        name="agents: a call with long arguments",
        covers=("supervisor.tool_words:tool_line", "supervisor.tool_words:subject_of"),
        make=lambda size: {"command": "x\n" * (size // 2)},
        run=lambda given: tool_line("Bash", given),
    ),
    CostProbe(
        name="a2a: a message of many parts",
        covers=("a2a_wire.parts:message_text",),
        make=_message,
        run=message_text,
    ),
    CostProbe(
        name="a2a: an answer of many pieces",
        covers=("a2a_wire.parts:join_answer",),
        make=_answer,
        run=lambda task: join_answer(task, ANSWER_ARTIFACT),
    ),
    KeptProbe(
        name="agents: a line without an end",
        covers=("supervisor.event_lines:EventLines._add",),
        attack=_endless_line,
        bound=2 * MAX_LINE_BYTES,
    ),
    FailureProbe(
        name="mcp: a delegate that is cut off while its delegation is recorded",
        covers=("mcp_server.begun:Begun.made_by", "mcp_server.session:HostSession.answering"),
        throw=throwing(test_obedient_model.test_D51_a_call_cut_off_while_the_delegation_is_recorded_ends_it_too),
    ),
    FailureProbe(
        name="agents: a full disk as one is added",
        covers=("supervisor.well_known.adding:_written",),
        throw=_full_disk,
    ),
)

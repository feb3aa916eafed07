"""Answers that have to satisfy a schema: a worker asks again, a super agent's last step counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sublet.policy.guardrail.options import GuardOptions, GuardrailFailed
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind
from sublet.supervisor.agent import UnifiedAgentInput
from sublet.supervisor.job import Job, Outcome, Output, Report
from sublet.supervisor.worker import WorkerAgent
from support.jobs import Log, command
from support.supervising import Events, context, control

pytestmark = pytest.mark.anyio
SCHEMA: dict[str, JsonValue] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


class Replies:
    """A provider that says one reply after the other."""

    def __init__(self, *replies: str) -> None:
        self._replies = list(replies)
        self.jobs: list[Job] = []

    async def run(self, job: Job, report: Report) -> Outcome:
        self.jobs.append(job)
        said = self._replies.pop(0)
        report(Output("stdout", said))
        return Outcome("done", said, 0, provider_session_id="p-1")


async def test_a_worker_asks_again_in_the_same_session_until_its_answer_passes(tmp_path: Path) -> None:
    events, provider = Events(), Replies("no idea", "n is 4", "{'n': '4'}")
    sessions = control(tmp_path, events)
    await sessions.create(session_id="ses_1")
    config = command("program").model_copy(update={"id": "coder"})
    worker = WorkerAgent(config, lambda: provider, sessions, gate=None, questions=None)
    ctx = context(tmp_path, events, "ses_1")
    found = await worker.handle(UnifiedAgentInput("count", SCHEMA), ctx)
    assert (found.structured, json.loads(found.text)) == ({"n": 4}, {"n": 4})
    assert "mended" in found.warnings[0]
    assert [job.provider_session_id for job in provider.jobs] == [None, "p-1", "p-1"]
    assert len({job.delegation_id for job in provider.jobs}) == 3
    assert [job.answer_schema for job in provider.jobs] == [SCHEMA] * 3
    told = events.of(EventKind.GUARDRAIL_FAILED)
    assert [event.data["class"] for event in told] == ["no_json", "no_json"]
    assert {event.keys.agent_id for event in told} == {"coder"}
    assert {event.keys.finger_session_id for event in told} == {"ses_1"}
    assert isinstance(ctx.report, Log)
    assert {output.stream for output in ctx.report.pieces} == {"note"}


async def test_a_worker_gives_up_after_the_retries_it_was_given(tmp_path: Path) -> None:
    events, provider = Events(), Replies("a", "b")
    worker = WorkerAgent(command("program"), lambda: provider, control(tmp_path, events), gate=None, questions=None)
    asked = UnifiedAgentInput("count", SCHEMA, GuardOptions(retries=1, on_failure="ask_human"))
    with pytest.raises(GuardrailFailed) as failed:
        await worker.handle(asked, context(tmp_path, events))
    assert failed.value.on_failure == "ask_human"
    assert [event.data["then"] for event in events.of(EventKind.GUARDRAIL_FAILED)] == ["retry", "ask_human"]


async def test_without_a_schema_nothing_is_guarded(tmp_path: Path) -> None:
    events, provider = Events(), Replies("plain words")
    worker = WorkerAgent(command("program"), lambda: provider, control(tmp_path, events), gate=None, questions=None)
    found = await worker.handle(UnifiedAgentInput("say"), context(tmp_path, events))
    assert (found.text, found.structured) == ("plain words", None)

"""A worker goes on with its provider's session, says when it can't, and ends with its lease."""

from __future__ import annotations

from pathlib import Path

import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.events import EventKind
from sublet.supervisor.agent import UnifiedAgentInput
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.job import Job, Outcome, Report
from sublet.supervisor.worker import WorkerAgent
from support.jobs import command
from support.supervising import Events, context, control
from support.worker import ScriptedAgent

pytestmark = pytest.mark.anyio
ID = "ses_1"


class Threads:
    """A provider with sessions of its own; those in ``lost`` can't be gone on with."""

    def __init__(self) -> None:
        self.seen: list[str | None] = []
        self.lost: set[str] = set()

    async def run(self, job: Job, report: Report) -> Outcome:
        self.seen.append(job.provider_session_id)
        asked = job.provider_session_id
        now = asked if asked is not None and asked not in self.lost else f"p-{len(self.seen)}"
        return Outcome("done", f"in {now}", 0, provider_session_id=now)


def config(agent_id: str, **session: object) -> AgentConfig:
    # The configured type says that it can't resume; what matters here is what the provider does.
    return command().model_copy(
        update={"id": agent_id, "session": command(session=session).session if session else command().session}
    )


async def test_two_agents_keep_their_own_threads_over_a_restart(tmp_path: Path) -> None:
    events, provider = Events(), Threads()
    for restart in range(2):
        sessions = control(tmp_path, events)
        if not restart:
            await sessions.create(session_id=ID)
        for name in ("coder", "reviewer"):
            worker = WorkerAgent(config(name), lambda: provider, sessions, gate=None, questions=None)
            answer = await worker.handle(UnifiedAgentInput("go on"), context(tmp_path, events, ID))
            assert (answer.agent_id, answer.warnings) == (name, ())
    assert provider.seen == [None, None, "p-1", "p-2"]
    assert events.kinds() == ["session_created", "session_bound", "session_bound", "session_resumed", "session_resumed"]


async def test_a_session_that_can_not_be_resumed_is_replaced_and_told(tmp_path: Path) -> None:
    events, provider = Events(), Threads()
    sessions = control(tmp_path, events)
    await sessions.create(session_id=ID)
    worker = WorkerAgent(config("coder"), lambda: provider, sessions, gate=None, questions=None)
    await worker.handle(UnifiedAgentInput("one"), context(tmp_path, events, ID))
    provider.lost.add("p-1")
    answer = await worker.handle(UnifiedAgentInput("two"), context(tmp_path, events, ID))
    assert answer.provider_session_id == "p-2"
    assert "could not go on" in answer.warnings[0]
    assert events.of(EventKind.SESSION_BOUND)[-1].data["lost"] == "p-1"
    [binding] = await sessions.bindings(ID)
    assert binding.provider_session_id == "p-2"


@pytest.mark.parametrize(
    ("session", "seen"),
    [
        ({"resume": False}, [None, None, None]),
        ({"bindingScope": "finger"}, [None, "p-1", "p-1"]),
        ({"bindingScope": "finger+agent"}, [None, "p-1", None]),
    ],
)
async def test_agent_json_decides_what_is_gone_on_with(
    tmp_path: Path, session: dict[str, object], seen: list[str | None]
) -> None:
    events, provider = Events(), Threads()
    sessions = control(tmp_path, events)
    await sessions.create(session_id=ID)
    for name in ("coder", "coder", "reviewer"):
        worker = WorkerAgent(config(name, **session), lambda: provider, sessions, gate=None, questions=None)
        await worker.handle(UnifiedAgentInput("go on"), context(tmp_path, events, ID))
    assert provider.seen == seen


def test_a_promise_that_the_provider_can_not_keep_is_no_configuration() -> None:
    with pytest.raises(ValueError, match="can't resume"):
        command(session={"resume": True})


async def test_damaged_bindings_are_told_with_the_answer(tmp_path: Path) -> None:
    events, provider = Events(), Threads()
    sessions = control(tmp_path, events)
    await sessions.create(session_id=ID)
    worker = WorkerAgent(config("coder"), lambda: provider, sessions, gate=None, questions=None)
    await worker.handle(UnifiedAgentInput("one"), context(tmp_path, events, ID))
    (tmp_path / "sessions" / ID / "agent-sessions.json").write_text("not json")
    answer = await worker.handle(UnifiedAgentInput("two"), context(tmp_path, events, ID))
    assert "agent-sessions.json was damaged" in answer.warnings[0]
    assert "session_damaged" in events.kinds()


async def test_failed_work_is_a_failure_with_its_words(tmp_path: Path) -> None:
    agent = ScriptedAgent()

    async def fail(job: Job, report: Report) -> Outcome:
        return Outcome("failed", "no such file", 3, "exit status 3")

    agent.work = fail
    worker = WorkerAgent(command(), lambda: agent, control(tmp_path, Events()), gate=None, questions=None)
    with pytest.raises(SubletError, match="exit code 3") as no:
        await worker.handle(UnifiedAgentInput("x"), context(tmp_path, Events()))
    assert no.value.code is ErrorCode.TASK_FAILED
    assert no.value.hint == "no such file"

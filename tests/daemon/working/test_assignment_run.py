"""What one assignment tells while its reader is slow, or gone, and what its end is called."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import asyncssh
import pytest

from sublet.daemon.working.assignment_run import AssignmentRun
from sublet.daemon.working.decisions import Decisions
from sublet.daemon.working.executor_tools import ExecutorTools
from sublet.daemon.working.updates import MAX_PENDING_UPDATES
from sublet.protocol.assignment.events import StopCame
from sublet.protocol.assignment.outputs import Output as Wanted
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Progress, Start
from sublet.supervisor.job import Job, Outcome, Output, Report
from sublet.workspace.export import ExportLimits
from support.gates import ListGate
from support.worker import ALICE, HERE, Worker, work_for_ever, worker

pytestmark = pytest.mark.anyio

OVER = SubletError(ErrorCode.CANCELLED, "over")
KEY = asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Worker]:
    async with worker(tmp_path) as side:
        yield side


async def make(side: Worker, start: Start | None = None) -> AssignmentRun:
    start = start or side.start_message(await side.accepted())
    scratch = side.root / "scratch"
    tools = ExecutorTools({"sshfs": side.mounts}, side.reverse, lambda _: side.agent, scratch, lambda *_: ListGate())
    decisions = Decisions("dlg_1", ALICE, _nothing, await side.record())
    decisions.held.key = KEY
    return AssignmentRun(decisions, start, HERE, anyio.current_time() + 60, tools)


async def _nothing(decisions: Decisions, output: Wanted, host: str) -> None:
    """Do nothing of what the core wants."""


def say(run: AssignmentRun, text: str, dropped: int = 0) -> None:
    run._news.output(Output("stdout", text, dropped))


async def test_the_agent_talks_in_the_room_that_start_names(side: Worker) -> None:
    accept = await side.accepted()
    room = "01a2230a-76a2-722b-9195-a71d135900a9"
    told = side.start_message(accept).model_dump()
    start = Start.model_validate({**told, "sublet": {**told["sublet"], "room_id": room}})
    run = await make(side, start)
    assert run.work_of("node-alice").room_id == room
    run.updates.close()
    run.finish(OVER)


async def test_every_character_is_told_or_counted_once(side: Worker) -> None:
    run = await make(side)
    produced = told = counted = 0

    def take(update: Progress) -> None:
        nonlocal told, counted
        told += len(update.text)
        counted += update.dropped_chars

    with run.updates:
        for burst in range(4):
            for _ in range(MAX_PENDING_UPDATES + 50):
                say(run, "12345", dropped=1)
                produced += 6
            for _ in range(60 * (burst + 1)):
                take(run.updates.receive_nowait())
        while run.updates.statistics().current_buffer_used:
            take(run.updates.receive_nowait())
        say(run, "", 0)
        take(run.updates.receive_nowait())
        run.finish(OVER)
        assert [update async for update in run.updates] == []
    assert told + counted == produced


async def test_a_reader_that_is_gone_does_not_disturb_the_work(side: Worker) -> None:
    run = await make(side)
    run.updates.close()
    say(run, "nobody listens")
    run.finish(OVER)


async def test_the_first_reason_to_stop_is_the_one_told(side: Worker) -> None:
    side.agent.work = work_for_ever
    start = side.start(await side.accepted())
    raised: list[str] = []

    async def collect() -> None:
        try:
            await side.updates(start)
        except SubletError as error:
            raised.append(error.message)

    async with anyio.create_task_group() as group:
        group.start_soon(collect)
        await side.agent.began.wait()
        decisions = side.executor._decisions["dlg_1"]
        await decisions.feed(StopCame(SubletError(ErrorCode.CANCELLED, "first")))
        await decisions.feed(StopCame(SubletError(ErrorCode.CANCELLED, "second")))
    assert raised == ["first"]
    await side.check_nothing_held()


async def test_work_whose_changes_were_refused_waits_for_the_word_why(side: Worker) -> None:
    async def write_too_much(job: Job, report: Report) -> Outcome:
        with pytest.raises(OSError, match="Input/output"):
            await asyncio.to_thread((job.workspace / "big").write_bytes, b"x" * 5_000)
        return Outcome("done", "all done", 0)

    side.agent.work = write_too_much
    accept = await side.accepted()
    start = side.start(accept, limits=ExportLimits(max_total_bytes=100))
    async with anyio.create_task_group() as group:
        raised: list[SubletError] = []

        async def run() -> None:
            try:
                await side.updates(start)
            except SubletError as error:
                raised.append(error)

        group.start_soon(run)
        await side.agent.ended.wait()
        await anyio.sleep(0.2)  # by now it would have said DONE
        why = SubletError(ErrorCode.TASK_FAILED, "quota exceeded", from_peer=True)
        await side.executor.wind_down("dlg_1", ALICE, why, 5)

    assert [error.message for error in raised] == ["quota exceeded"]
    assert raised[0].agent_end is not None
    assert raised[0].agent_end.exit_code == 0
    record = await side.record()
    assert (str(record.state), record.error and record.error.message) == ("error", "quota exceeded")


async def test_winding_down_lets_the_agent_speak_and_then_ends_it(side: Worker) -> None:
    said = asyncio.Event()

    async def speak(job: Job, report: Report) -> Outcome:
        await said.wait()
        report(Output("stdout", "my last word", 0))
        await asyncio.Event().wait()
        raise AssertionError

    side.agent.work = speak
    start = side.start(await side.accepted())
    updates: list[Progress] = []
    raised: list[str] = []

    async def collect() -> None:
        try:
            async for update in side.executor.run(start, ALICE, source_host=HERE):
                assert isinstance(update, Progress)
                updates.append(update)
        except SubletError as error:
            raised.append(error.message)

    async with anyio.create_task_group() as group:
        group.start_soon(collect)
        await side.agent.began.wait()
        await side.executor.wind_down("dlg_1", ALICE, SubletError(ErrorCode.TASK_FAILED, "quota exceeded"), 0.3)
        said.set()

    assert "quota exceeded" in "".join(update.text for update in updates)
    assert any(update.text == "my last word" for update in updates)
    assert raised == ["quota exceeded"]
    await side.check_nothing_held()

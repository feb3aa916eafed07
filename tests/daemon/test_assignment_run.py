"""What one assignment tells while its reader is slow, or gone, and what its end is called."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import asyncssh
import pytest

from sublet.daemon.assignment_run import MAX_PENDING_UPDATES, AssignmentRun, ExecutorTools
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Progress
from sublet.supervisor.model import Outcome, Output
from support.worker import HERE, Worker, worker

pytestmark = pytest.mark.anyio

KEY = asyncssh.generate_private_key("ssh-ed25519")


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Worker]:
    async with worker(tmp_path) as side:
        yield side


async def make(side: Worker) -> AssignmentRun:
    accept = await side.accepted()
    start = side.start_message(accept)
    tools = ExecutorTools({"sshfs": side.mounts}, side.reverse, lambda _: side.agent, side.root / "scratch")
    return AssignmentRun(await side.record(), start, KEY, HERE, anyio.current_time() + 60, tools)


def say(run: AssignmentRun, text: str, dropped: int = 0) -> None:
    run._report(Output("stdout", text, dropped))


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
        run.finish()
        assert [update async for update in run.updates] == []
    assert told + counted == produced


async def test_a_reader_that_is_gone_does_not_disturb_the_work(side: Worker) -> None:
    run = await make(side)
    run.updates.close()
    say(run, "nobody listens")
    run.finish()


async def test_the_first_reason_to_stop_is_the_one_told(side: Worker) -> None:
    run = await make(side)
    run.stop(SubletError(ErrorCode.CANCELLED, "first"))
    run.stop(SubletError(ErrorCode.CANCELLED, "second"))
    await run.work()
    run.finish()
    run.updates.close()
    assert run.error is not None
    assert run.error.message == "first"
    assert run.done is None
    assert side.agent.jobs == []


async def test_a_done_that_can_not_be_journalled_is_none(side: Worker) -> None:
    run = await make(side)
    run.outcome = Outcome("done", "", 0)
    run.finish(SubletError(ErrorCode.TASK_FAILED, "the store failed"))
    run.updates.close()
    assert run.done is None
    assert run.error is not None
    assert run.error.message == "the store failed"
    assert run.finished.is_set()

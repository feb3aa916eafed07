"""When a run ends: with its lease, wherever that is moved to, and no later than the agent's own limit."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from sublet.supervisor.job import Deadline, Job
from sublet.supervisor.run_time import RunTime
from support.jobs import job

pytestmark = pytest.mark.anyio

FAR = 3_600.0


def now() -> float:
    return asyncio.get_running_loop().time()


def leased(base: Path, at: float) -> Job:
    return replace(job(base, ""), deadline=Deadline(at))


@pytest.mark.parametrize(("own", "expected"), [(None, FAR), (0, FAR), (60.0, 60.0), (2 * FAR, FAR)])
async def test_the_first_of_the_two_ends_it(tmp_path: Path, own: float | None, expected: float) -> None:
    time = RunTime(leased(tmp_path, now() + FAR), own)
    assert time.given_seconds == pytest.approx(expected, abs=30)


async def test_a_lease_that_is_extended_moves_the_end_and_never_beyond_the_own_limit(tmp_path: Path) -> None:
    work = leased(tmp_path, now() + 10)
    free, bounded = RunTime(work, None), RunTime(work, 60)
    assert work.deadline is not None
    work.deadline.move(now() + FAR)
    assert free.given_seconds > FAR - 60
    assert bounded.given_seconds == pytest.approx(60)


async def test_without_a_lease_the_seconds_of_the_job_count(tmp_path: Path) -> None:
    time = RunTime(replace(job(tmp_path, ""), remaining_seconds=FAR, deadline=None), None)
    assert time.given_seconds == pytest.approx(FAR)


async def moved(time: RunTime, deadline: Deadline, first: float, last: float) -> None:
    """Wait for ever within the time of a run, whose lease is moved at once, and again while the block ends."""
    async with time.limiting():
        deadline.move(first)
        try:
            await asyncio.Event().wait()
        finally:
            deadline.move(last)


async def test_a_block_is_ended_where_the_lease_is_moved_to_and_what_has_run_out_stays_so(tmp_path: Path) -> None:
    work = leased(tmp_path, now() + FAR)
    assert work.deadline is not None
    with pytest.raises(TimeoutError):
        await moved(RunTime(work, None), work.deadline, now(), now() + FAR)
    work.deadline.move(now() + FAR)  # nobody watches any more

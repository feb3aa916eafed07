"""All stages of a stop share one deadline, and a stop that hangs nevertheless is cut off."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import anyio
import pytest

from sublet.daemon.process.endings import Ending, Stop
from sublet.daemon.process.stop_limit import CUT_SECONDS
from sublet.stop_time import STOP_SECONDS, StopTime, within

pytestmark = pytest.mark.anyio
HANGS = """
import threading, time
from sublet.daemon.process.stop_limit import StopLimit
threading.Thread(target=lambda: time.sleep(600)).start()  # not a daemon thread: Python waits for it
StopLimit(seconds=0.1).begin({status})
"""


def test_a_stage_gets_no_more_than_what_is_left_of_the_whole() -> None:
    now = 100.0
    whole = StopTime(4.0, lambda: now)
    assert whole.left(20.0) == 20.0
    whole.begin()
    assert (whole.left(20.0), whole.left(3.0)) == (4.0, 3.0)
    now = 103.0
    whole.begin()
    assert (whole.left(20.0), whole.left(0.5)) == (1.0, 0.5)
    now = 105.0
    assert whole.left(20.0) == 0.0


async def test_tasks_and_threads_of_one_daemon_find_its_deadline_and_nobody_elses() -> None:
    now = 0.0

    async def stages(begun: bool) -> None:
        whole = StopTime(4.0, lambda: now)
        whole.use()
        if begun:
            whole.begin()
        expected = 4.0 if begun else 9.0
        async with asyncio.TaskGroup() as group:
            inner = group.create_task(left())
        assert inner.result() == expected
        assert await anyio.to_thread.run_sync(within, 9.0) == expected

    async def left() -> float:
        return within(9.0)

    async with asyncio.TaskGroup() as group:
        group.create_task(stages(begun=True))
        group.create_task(stages(begun=False))
    assert within(9.0) == 9.0


async def test_the_first_reason_to_stop_begins_the_count() -> None:
    begun: list[bool] = []
    stop = Stop(begun.append)
    stop.now(Ending.STATE_GONE)
    stop.ask()
    assert begun == [True]
    assert stop.time.left(60.0) <= STOP_SECONDS < CUT_SECONDS


@pytest.mark.parametrize("status", [0, 1])
def test_a_process_that_waits_for_a_thread_without_end_is_ended(status: int) -> None:
    code = HANGS.format(status=status)
    ended = subprocess.run([sys.executable, "-c", code], check=False, timeout=60, capture_output=True, text=True)
    assert ended.returncode == status
    assert "cut off" in ended.stdout + ended.stderr

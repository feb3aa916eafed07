"""Time limits, in tasks that go on and in tasks that are being cancelled."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import anyio
import pytest

from sublet import deadlines

pytestmark = pytest.mark.anyio
SOURCE = Path(deadlines.__file__).parent


async def test_a_limit_ends_its_block_and_nothing_else() -> None:
    limit = deadlines.timeout(0)
    with pytest.raises(TimeoutError):
        async with limit:
            await asyncio.Event().wait()
    assert limit.expired()
    await asyncio.sleep(0)


async def test_a_block_that_ends_in_time_is_left_alone() -> None:
    for seconds in (None, 60):
        async with deadlines.timeout(seconds) as limit:
            await asyncio.sleep(0)
        assert not limit.expired()
        with pytest.raises(RuntimeError):
            limit.reschedule(None)


async def test_a_limit_can_be_moved() -> None:
    async def work() -> None:
        async with deadlines.timeout_at(None) as limit:
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await work()


async def test_a_cancelled_task_is_not_taken_for_one_that_is_late() -> None:
    async def work() -> None:
        async with deadlines.timeout(60):
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("seconds", [0, 0.001])
async def test_a_limit_holds_in_a_task_that_was_cancelled_before(seconds: float) -> None:
    came = list[str]()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    async with deadlines.timeout(seconds):
                        await asyncio.Event().wait()
                except TimeoutError:
                    came.append("late")
                came.append("what comes after")

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert came == ["late", "what comes after"]
    assert task.cancelled()


def test_nothing_uses_the_limits_that_are_wrong_on_some_pythons() -> None:
    wrong = re.compile(r"\basyncio\.(timeout|timeout_at|wait_for)\(")
    found = [
        str(file.relative_to(SOURCE))
        for file in SOURCE.rglob("*.py")
        if wrong.search(file.read_text(encoding="utf-8")) and file.name != "deadlines.py"
    ]
    assert found == []

"""What a daemon has opened is closed the last first, whatever becomes of one of them, and also by a cancelled task."""

from __future__ import annotations

import anyio
import pytest

from sublet.daemon.process.opened import Opened

pytestmark = pytest.mark.anyio


async def test_the_last_that_was_opened_is_closed_first_and_a_failure_skips_none() -> None:
    closed: list[str] = []

    async def waits() -> None:
        await anyio.sleep(0)
        closed.append("waits")

    def fails() -> None:
        closed.append("fails")
        raise OSError("it is gone")

    async def run() -> None:
        async with Opened() as opened:
            opened.close_by(lambda: closed.append("first"))
            opened.wait_for(waits)
            opened.close_by(fails)

    with pytest.raises(OSError, match="gone"):
        await run()
    assert closed == ["fails", "waits", "first"]


async def test_what_takes_a_while_to_close_is_waited_for_by_a_task_that_is_cancelled() -> None:
    closed: list[str] = []

    async def waits() -> None:
        await anyio.sleep(0.01)
        closed.append("waits")

    with anyio.CancelScope() as scope:
        async with Opened() as opened:
            opened.wait_for(waits)
            scope.cancel()
            await anyio.sleep(60)
    assert closed == ["waits"]
    assert scope.cancelled_caught


async def test_a_start_that_fails_says_why_once_all_is_closed() -> None:
    closed: list[str] = []

    async def run() -> None:
        async with Opened() as opened:
            opened.close_by(lambda: closed.append("port"))
            raise ValueError("a bad file")

    with pytest.raises(ValueError, match="a bad file"):
        await run()
    assert closed == ["port"]

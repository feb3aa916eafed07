"""Work that blocks: its outcome comes back, and an endless one keeps nobody from ending."""

from __future__ import annotations

import asyncio
import threading

import anyio
import pytest

from sublet.daemon.tasks.background import in_background


@pytest.mark.anyio
async def test_results_and_failures_come_back() -> None:
    assert await in_background(divmod, 7, 3) == (2, 1)
    with pytest.raises(ZeroDivisionError):
        await in_background(divmod, 7, 0)


def test_what_never_ends_is_left_alone() -> None:
    """With ``asyncio.to_thread`` the loop could not be closed before the thread has ended."""
    release, ended = threading.Event(), threading.Event()

    def endless() -> None:
        release.wait()
        ended.set()

    async def main() -> None:
        with anyio.move_on_after(0.01):
            await in_background(endless)

    asyncio.run(main())
    assert not ended.is_set()
    release.set()
    assert ended.wait(10)


@pytest.mark.anyio
async def test_an_outcome_that_nobody_waits_for_any_more_is_dropped() -> None:
    release = threading.Event()

    def fail() -> None:
        release.wait(10)
        raise ValueError("nobody listens")

    with anyio.move_on_after(0.01):
        await in_background(fail)
    release.set()
    await asyncio.sleep(0.01)

"""The daemon tells when its loop served nobody else, for how long, and what ran."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from sublet.daemon.health.stalls import MAX_KEPT, Stalls
from sublet.tasks import described

pytestmark = pytest.mark.anyio


class Clock:
    """Passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Watched:
    def __init__(self) -> None:
        self.clock = Clock()
        self.stalls = Stalls(self.clock, look_seconds=0.001)

    def stall(self, seconds: float = 1.0) -> None:
        """Hold the loop until the watch has seen it."""
        self.clock.now += seconds
        turn = self.stalls._turn
        while self.stalls._samples[0] != turn:
            pass

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Stalls]:
        async with anyio.create_task_group() as group:
            group.start_soon(self.stalls.serve)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            yield self.stalls
            group.cancel_scope.cancel()


@pytest.fixture
def watched() -> Watched:
    return Watched()


async def test_a_stall_is_told_with_the_function_that_ran(watched: Watched) -> None:
    async with watched.running() as stalls:
        watched.stall(1.5)
        await asyncio.sleep(0)
        [stall] = stalls.newest
        assert (stall.milliseconds, stalls.count) == (1500, 1)
        assert stall.ran.endswith("test_stalls:Watched.stall")


async def test_a_function_of_ours_is_named_before_what_it_called(watched: Watched) -> None:
    class Slow(Exception):
        def __str__(self) -> str:
            watched.stall()
            return ""

    async with watched.running() as stalls:
        described(Slow())
        await asyncio.sleep(0)
        assert stalls.newest[0].ran.startswith("sublet.tasks:described (in ")


async def test_short_turns_are_not_told_and_the_rest_is_bounded(watched: Watched) -> None:
    async with watched.running() as stalls:
        watched.clock.now += 0.2
        await asyncio.sleep(0)
        assert stalls.newest == []
        for number in range(MAX_KEPT + 8):
            watched.clock.now += 1 + number
            await asyncio.sleep(0)
        assert len(stalls.newest) == MAX_KEPT
        assert stalls.count == MAX_KEPT + 8
        assert stalls.newest[0].milliseconds == 1000 * (MAX_KEPT + 8)


async def test_an_idle_loop_is_not_looked_at_and_an_end_leaves_nothing(watched: Watched) -> None:
    loop = asyncio.get_running_loop()
    selector = loop._selector  # type: ignore[attr-defined]
    before = threading.active_count()
    async with watched.running() as stalls:
        assert threading.active_count() == before + 1
        seen = threading.Event()

        def look() -> None:
            while not stalls._parked:
                seen.wait(0.001)
            seen.set()

        await anyio.to_thread.run_sync(look)
        assert seen.is_set()
        async with Watched().running():
            pass
    assert "select" not in vars(selector) or vars(selector)["select"] == selector.__class__.select.__get__(selector)
    await asyncio.sleep(0)
    assert watched.stalls.count == 0


DEADLOCK = """
import gc, sys, threading, time
from sublet.daemon.health.stalls import frame_of

def collected(phase, _):
    if phase == "start" and threading.get_ident() == me:
        time.sleep(0.001)  # others go on

def start_threads():
    while not stop.is_set():
        one = threading.Thread(target=int)
        one.start()
        one.join()

me, stop = threading.get_ident(), threading.Event()
gc.callbacks.append(collected)
starting = [threading.Thread(target=start_threads) for _ in range(3)]
for one in starting:
    one.start()
gc.set_threshold(1)
for _ in range(500):
    assert frame_of(me) is not None
assert gc.isenabled()
stop.set()
for one in starting:
    one.join()
"""


def test_looking_where_a_thread_stands_ends_although_garbage_is_due_and_threads_start() -> None:
    """Before, both sides waited for each other for good, and the daemon with them."""
    subprocess.run([sys.executable, "-c", DEADLOCK], check=True, timeout=60)

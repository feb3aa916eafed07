"""How long the loop works for a member counts, and who has had more than its part waits while others are at work."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

import anyio
import pytest

from sublet.office_server import loop_time
from sublet.office_server.lines import LOOP_AT_ONCE, LOOP_PART, Line, Lines, worked_for, works_for
from sublet.office_server.loop_time import MAX_AT_WORK, PAIR, AtWork, Counted, counted, nobody_waits

pytestmark = pytest.mark.anyio


def lines(count: int) -> list[Line]:
    """Return lines that know of each other."""
    together = Lines()
    return [Line("127.0.0.1", together) for _ in range(count)]


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return how long lines have been told to wait; none of them does."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    return found


async def test_who_has_had_more_than_its_part_waits_while_others_are_at_work(waits: list[float]) -> None:
    busy, *others = lines(PAIR + 1)
    for one in others:
        one.pace.worked(0.001)
    busy.pace.worked(LOOP_AT_ONCE + 0.1)
    await busy.pace.wait()
    for one in others:
        await one.pace.wait()
    (waited,) = waits
    assert 0.09 / LOOP_PART < waited <= 0.1 / LOOP_PART


async def test_a_pair_may_have_all_of_the_loop_as_long_as_nobody_else_is_at_work(waits: list[float]) -> None:
    busy, other, third = lines(PAIR + 1)
    for _ in range(100):
        busy.pace.worked(1.0)
        other.pace.worked(1.0)
    await busy.pace.wait()
    assert waits == []
    third.pace.worked(0.001)
    await busy.pace.wait()
    # What it had while nobody else was there is not held against it without end.
    assert 0 < waits[0] <= LOOP_AT_ONCE / LOOP_PART


async def test_frames_and_bytes_cost_time_too(waits: list[float]) -> None:
    busy, *others = lines(PAIR + 1)
    for one in others:
        one.pace.worked(0.001)
    for _ in range(2):
        busy.pace.spend(400)
    busy.pace.spend(1, 50 << 20)
    await busy.pace.wait()
    assert len(waits) == 1


async def test_what_a_task_does_counts_with_the_line_that_it_works_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(loop_time, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    spent: list[float] = []
    mine, other = lines(2)
    monkeypatch.setattr(mine.pace, "worked", spent.append)
    monkeypatch.setattr(other.pace, "worked", spent.append)

    async def work() -> str:
        clock[0] += 2
        asyncio.get_running_loop().call_soon(lambda: clock.__setitem__(0, 100.0))  # which is nobody's time
        await asyncio.sleep(0)
        clock[0] += 3
        return "done"

    assert await Counted(mine.pace, work()) == "done"
    assert spent == [2, 3]
    works_for(other)
    assert worked_for() is other
    with counted(other.pace), counted(None):
        clock[0] += 4
    assert spent == [2, 3, 4]


async def test_what_is_counted_can_be_cancelled_and_fails_as_it_does() -> None:
    (line,) = lines(1)
    ended = list[str]()

    async def waits() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    with anyio.move_on_after(0.05):
        await Counted(line.pace, waits())
    assert ended == ["cancelled"]

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError("made up")

    with pytest.raises(LookupError, match="made up"):
        await Counted(line.pace, fails())


async def test_few_are_remembered_and_none_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    at_work = AtWork()
    for number in range(MAX_AT_WORK + 10):
        at_work.note(number)
    assert len(at_work._last) == MAX_AT_WORK
    assert at_work.crowded
    monkeypatch.setattr(loop_time, "WITHIN_SECONDS", -1.0)
    assert not at_work.crowded
    assert at_work._last == {}


async def test_who_waits_for_a_quiet_turn_waits_for_no_more_than_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_time, "QUIET_SECONDS", 0.0)  # no turn is as quick
    monkeypatch.setattr(loop_time, "MOST_SECONDS", 0.05)
    begun = time.perf_counter()
    await nobody_waits()
    assert time.perf_counter() - begun >= 0.05

"""A caller who gives up while an INVITE is answered: whenever that is, what it was promised is free at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from sublet.daemon.working.acceptance import choose_transport
from sublet.protocol.messages import Accept
from support.worker import ALICE, HERE, Worker, invite, worker

pytestmark = pytest.mark.anyio

FREE_SECONDS = 20.0
"""A bound of the test alone: a slot that is not freed at once is held for 60 s."""
POINTS = ("find", "check", "transport", "acquire", "reserve", "begin", "answer")


async def until_free(side: Worker) -> None:
    """Return once nothing is held for anybody."""
    with anyio.fail_after(FREE_SECONDS):
        while (
            side.slots.in_use or side.executor._assignments.under_way or await side.journal.resources.open_resources()
        ):
            await anyio.lowlevel.checkpoint()


def hooked(side: Worker, monkeypatch: pytest.MonkeyPatch, point: str, when: str, give_up: Callable[[], None]) -> None:
    """Have ``give_up`` called once, before or after what is awaited at ``point``."""
    fired: list[str] = []

    def fire(moment: str) -> None:
        if moment == when and not fired:
            fired.append(moment)
            give_up()

    def around(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def hook(*given: Any, **named: Any) -> Any:
            fire("before")
            result = await call(*given, **named)
            fire("after")
            return result

        return hook

    executor = side.executor
    if point in ("transport", "reserve"):
        wanted = choose_transport if point == "transport" else None
        in_thread = asyncio.to_thread

        async def to_thread(call: Any, *given: Any) -> Any:
            is_it = call is wanted if wanted is not None else getattr(call, "__name__", "") == "reserve"
            return await (around(in_thread) if is_it else in_thread)(call, *given)

        monkeypatch.setattr(asyncio, "to_thread", to_thread)
        return
    owner: Any = {
        "find": executor._assignments,
        "check": executor._acceptance,
        "acquire": executor._journal.resources,
        "begin": executor._assignments,
        "answer": executor,
    }[point]
    name = "_accept" if point == "answer" else point
    monkeypatch.setattr(owner, name, around(getattr(owner, name)))


async def given_up(side: Worker, arrange: Callable[[Callable[[], None]], None], *, native: bool) -> list[Accept]:
    """Ask, give up when ``arrange`` calls back, and return what was answered all the same."""
    answered: list[Accept] = []
    scope = anyio.CancelScope()

    async def ask() -> None:
        with scope:
            answered.append(await side.executor.invite(invite(), ALICE, source_host=HERE))

    task = asyncio.create_task(ask())
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.call_soon_threadsafe(task.cancel if native else scope.cancel)

    arrange(stop)
    await asyncio.wait([task])
    return answered


@pytest.mark.parametrize("native", [True, False], ids=["task", "scope"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("point", POINTS)
async def test_a_caller_who_gives_up_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str, when: str, native: bool
) -> None:
    async with worker(tmp_path) as side:
        answered = await given_up(side, lambda stop: hooked(side, monkeypatch, point, when, stop), native=native)
        if answered:  # it was there before the caller gave up, who then says so: ``ExecutorApi.cancel``
            assert (point, when) == ("answer", "after")
            await side.executor.cancel("dlg_1", ALICE)
        await until_free(side)
        monkeypatch.undo()
        accept = await side.accepted("dlg_2")
        await side.executor.cancel(accept.delegation_id, ALICE)
        await side.check_nothing_held()


@pytest.mark.parametrize("seed", range(6))
async def test_a_caller_who_gives_up_at_any_turn_of_the_loop_holds_nothing(tmp_path: Path, seed: int) -> None:
    """The turns are seeded; where threads are quicker or slower, they fall elsewhere, and it holds there as well."""
    turns = random.Random(seed)
    async with worker(tmp_path) as side:
        for number in range(12):
            task = asyncio.create_task(side.executor.invite(invite(f"dlg_{number}"), ALICE, source_host=HERE))
            for _ in range(turns.choice([0, 1, 2, 3, 5, 8, 20, 60, 200, 600])):
                await anyio.lowlevel.checkpoint()
            if task.done():
                await side.executor.cancel(f"dlg_{number}", ALICE)
            task.cancel()
            await asyncio.wait([task])
            await until_free(side)
        await side.check_nothing_held()


async def test_an_answer_in_hand_is_given_up_with_its_caller(tmp_path: Path) -> None:
    """The answer is there, and the caller is cancelled before it could take it."""
    async with worker(tmp_path) as side:
        task = asyncio.create_task(side.executor.invite(invite(), ALICE, source_host=HERE))
        with anyio.fail_after(FREE_SECONDS):
            while "dlg_1" not in side.executor._decisions:
                await anyio.lowlevel.checkpoint()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await until_free(side)
        await side.check_nothing_held()

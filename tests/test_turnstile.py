"""The turnstile: a few pass in a turn of the loop, in order, and who is gone takes nobody's place."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sublet.turns import Turnstile

pytestmark = pytest.mark.anyio


async def turns_of_passing(turnstile: Turnstile, count: int, *, gone: frozenset[int] = frozenset()) -> list[list[int]]:
    """Return who has passed in each turn of the loop, where some are cancelled before their turn."""
    passed: list[list[int]] = [[]]

    async def passes(number: int) -> None:
        await turnstile.passed()
        passed[-1].append(number)

    tasks = [asyncio.create_task(passes(number)) for number in range(count)]
    await asyncio.sleep(0)
    for number in gone:
        tasks[number].cancel()
    while not all(task.done() for task in tasks):
        passed.append([])
        await asyncio.sleep(0)
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
    return [turn for turn in passed if turn]


async def test_a_few_pass_in_a_turn_and_in_order() -> None:
    turns = await turns_of_passing(Turnstile(3), 8)
    assert turns == [[0, 1, 2], [3, 4, 5], [6, 7]]


async def test_who_is_gone_takes_nobodys_place() -> None:
    turns = await turns_of_passing(Turnstile(2), 6, gone=frozenset({0, 3}))
    assert turns == [[1, 2], [4, 5]]


async def test_it_can_be_passed_again_and_again() -> None:
    turnstile = Turnstile(1)
    assert await turns_of_passing(turnstile, 2) == [[0], [1]]
    assert await turns_of_passing(turnstile, 2) == [[0], [1]]

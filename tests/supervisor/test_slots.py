"""Slots, by a clock of our own."""

from __future__ import annotations

import pytest

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.supervisor.slots import Slots


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_five_run_and_the_sixth_is_declined_with_a_hint() -> None:
    slots = Slots(lambda: 5)
    for number in range(5):
        slots.reserve(f"d{number}")
    with pytest.raises(SubletError, match="all 5 slots") as caught:
        slots.reserve("d5")
    assert caught.value.code == ErrorCode.DECLINED
    assert "Try again in about 30 s" in caught.value.hint
    assert caught.value.retry_after_seconds == 30
    slots.release("d0")
    slots.release("d0")
    slots.reserve("d5")
    assert slots.in_use == 5


def test_a_repeated_invite_takes_no_second_slot() -> None:
    slots = Slots(lambda: 1)
    slots.reserve("a")
    slots.reserve("a")
    with slots.run("a"):
        slots.reserve("a")
        assert slots.in_use == 1
    assert slots.in_use == 0


def test_a_slot_that_no_start_claims_comes_back() -> None:
    clock = Clock()
    slots = Slots(lambda: 1, reserved_seconds=60, clock=clock)
    slots.reserve("a")
    clock.now += 50
    with pytest.raises(SubletError) as caught:
        slots.reserve("b")
    assert "about 10 s" in caught.value.hint
    clock.now += 10
    slots.reserve("b")
    with pytest.raises(SubletError), slots.run("a"):
        pytest.fail("its slot is gone")
    clock.now += 60
    with slots.run("a"):
        clock.now += 1000
        assert slots.in_use == 1


def test_a_slot_comes_back_however_the_task_ends() -> None:
    slots = Slots(lambda: 1)
    with pytest.raises(ValueError, match="boom"), slots.run("a"):
        raise ValueError("boom")
    assert slots.in_use == 0


def test_one_delegation_runs_once() -> None:
    slots = Slots(lambda: 2)
    with slots.run("a"), pytest.raises(SubletError, match="runs already"), slots.run("a"):
        pytest.fail("ran twice")


def test_who_repeats_promises_gives_one_to_who_holds_fewer() -> None:
    clock = Clock()
    slots = Slots(lambda: 3, reserved_seconds=60, clock=clock)
    for number in range(3):
        assert slots.reserve(f"m{number}", 60 - number, holder="mallory") is None
    with pytest.raises(SubletError, match="all 3 slots"):
        slots.reserve("m3", holder="mallory")
    assert slots.reserve("a0", holder="alice") == "m2"
    with pytest.raises(SubletError, match="all 3 slots"):  # two and one: alice may take none beyond her share
        slots.reserve("a1", holder="alice")
    with slots.run("a0"), slots.run("m0"), slots.run("m1"), pytest.raises(SubletError, match="all 3 slots"):
        slots.reserve("b0", holder="bob")  # what runs is never ended for it
    assert slots.in_use == 0

"""What was loaded is left out of collections: once nothing more comes, and after the garbage of then has gone."""

from __future__ import annotations

import gc
import os
import weakref

import anyio
import pytest

from sublet.daemon.health.heap import Heap
from sublet.daemon.health.loaded import LEAST_MODULES, Loaded, leave_out


class Load:
    """Modules that are loaded as a test wants it."""

    def __init__(self) -> None:
        self.modules = 1_000
        self.left_out: list[int] = []
        self.loaded = Loaded(lambda: self.modules, lambda: self.left_out.append(self.modules))
        self.loaded.ready()


def test_what_was_loaded_to_start_is_left_out_once() -> None:
    load = Load()
    assert load.left_out == [1_000]
    assert not load.loaded.look()
    assert load.left_out == [1_000]


def test_a_load_is_left_out_once_nothing_more_comes() -> None:
    load = Load()
    for _ in range(3):
        load.modules += LEAST_MODULES
        assert not load.loaded.look()
    assert load.loaded.look()
    assert not load.loaded.look()
    assert load.left_out == [1_000, 1_000 + 3 * LEAST_MODULES]


def test_a_few_modules_are_not_worth_it_until_they_are_many() -> None:
    load = Load()
    load.modules += LEAST_MODULES - 1
    assert not load.loaded.look()
    assert not load.loaded.look()
    load.modules += 1
    assert not load.loaded.look()
    assert load.loaded.look()


class Ring:
    """Something in a cycle."""

    def __init__(self) -> None:
        self.own = self


def in_a_child(check: str) -> None:
    """Check something where the collector may be changed."""
    pid = os.fork()
    if pid == 0:
        try:
            gc.enable()
            gc.disable()
            garbage = weakref.ref(Ring())
            kept = Ring()
            before = gc.get_freeze_count()
            leave_out()
            known = {
                "left out": gc.get_freeze_count() > before and not any(one is kept for one in gc.get_objects()),
                "garbage": garbage() is None,
            }
            os._exit(0 if known[check] else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("what", ["left out", "garbage"])
def test_what_is_there_is_left_out_and_what_is_garbage_goes(what: str) -> None:
    in_a_child(what)


@pytest.mark.anyio
async def test_the_service_looks_wherever_it_can_read_the_heap_or_not() -> None:
    looked = anyio.Event()
    work = iter(range(1_000_000))
    heap = Heap(look_seconds=0.0, used=lambda: float(next(work)), loaded=looked.set)
    heap._free = None
    async with anyio.create_task_group() as group:
        group.start_soon(heap.serve)
        with anyio.fail_after(30):
            await looked.wait()
        group.cancel_scope.cancel()

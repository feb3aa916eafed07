"""What is freed after a burst goes back to the system, and an idle daemon does not look for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest

from sublet.daemon.health.heap import SLACK_BYTES, WORK_SECONDS, Bytes, Heap, free_reader

pytestmark = pytest.mark.anyio


IN_USE = 100 << 20
BESIDE = 50 << 20


@dataclass
class FakeHeap:
    """A heap of which ``free`` bytes are used by nothing, and ``held`` of them are in memory; ``in_use`` are used."""

    free: int = 0
    held: int = 0
    in_use: int = IN_USE
    used: float = 0.0
    looks: int = 0
    given: list[int] = field(default_factory=list)

    def burst(self, size: int) -> None:
        """Use so much, and free it, taking first what is free already."""
        self.free, self.held = max(self.free, size), max(self.held, size)

    def release(self, size: int) -> None:
        """Free what was in use."""
        self.in_use -= size
        self.free += size
        self.held += size

    def read(self) -> Bytes:
        """Return what is free and what is in use."""
        self.looks += 1
        return Bytes(self.free, self.in_use)

    def give_back(self) -> None:
        """Give it back; the C library goes on counting it as free."""
        self.given.append(self.held)
        self.held = 0

    @property
    def heap(self) -> Heap:
        """The part that looks at it."""
        return Heap(self.read, self.give_back, 0.0, lambda: self.used, lambda: BESIDE + self.in_use + self.held)


async def test_what_stays_free_is_given_back_once_for_each_burst() -> None:
    fake = FakeHeap()
    heap = fake.heap
    fake.burst(SLACK_BYTES)
    assert not await heap.look()  # it may be used again at once
    assert await heap.look()
    assert not await heap.look()  # it is still counted as free
    assert not await heap.look()
    fake.burst(SLACK_BYTES)  # used and freed again between two looks, so that nobody has seen it in use
    assert not await heap.look()
    assert await heap.look()
    assert not await heap.look()
    assert fake.given == [SLACK_BYTES, SLACK_BYTES]


async def test_what_is_in_use_is_not_taken_for_free() -> None:
    fake = FakeHeap()
    heap = fake.heap
    fake.burst(SLACK_BYTES)
    assert not await heap.look()
    assert await heap.look()
    fake.in_use += SLACK_BYTES * 10
    for _ in range(4):
        assert not await heap.look()
    assert len(fake.given) == 1


async def test_what_was_in_use_when_something_was_given_back_goes_too_once_it_is_free() -> None:
    """A flood frees some of what it takes while it goes on, and the rest when it is over."""
    fake = FakeHeap()
    heap = fake.heap
    fake.in_use += SLACK_BYTES * 3
    fake.burst(SLACK_BYTES)
    assert not await heap.look()
    assert await heap.look()
    fake.release(SLACK_BYTES * 3)
    assert not await heap.look()
    assert await heap.look()
    for _ in range(4):
        assert not await heap.look()
    assert fake.given == [SLACK_BYTES, SLACK_BYTES * 3]


async def test_it_is_seen_although_memory_beside_the_heaps_was_let_go_at_once() -> None:
    fake = FakeHeap()
    beside = BESIDE
    heap = Heap(fake.read, fake.give_back, 0.0, lambda: 0.0, lambda: beside + fake.in_use + fake.held)
    fake.in_use += SLACK_BYTES * 3
    fake.burst(SLACK_BYTES)
    assert not await heap.look()
    assert await heap.look()
    fake.release(SLACK_BYTES * 3)
    beside -= SLACK_BYTES * 3
    assert not await heap.look()
    assert await heap.look()
    assert fake.given == [SLACK_BYTES, SLACK_BYTES * 3]


async def test_little_is_left_alone() -> None:
    fake = FakeHeap()
    fake.burst(SLACK_BYTES - 1)
    heap = fake.heap
    for _ in range(4):
        assert not await heap.look()
    assert fake.given == []


async def test_an_idle_daemon_does_not_look() -> None:
    fake = FakeHeap()
    fake.burst(SLACK_BYTES)
    async with anyio.create_task_group() as group:
        group.start_soon(fake.heap.serve)
        for _ in range(50):
            await anyio.sleep(0)
        assert fake.looks == 0
        fake.used = WORK_SECONDS
        while not fake.given:  # twice before it is given back
            await anyio.sleep(0)
        for _ in range(50):
            await anyio.sleep(0)
        assert fake.looks == 3  # and once more after it, for what is still counted as free
        assert len(fake.given) == 1
        group.cancel_scope.cancel()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(free_reader() is None, reason="this C library does not tell what is free")
async def test_a_burst_that_goes_on_while_something_is_given_back_leaves_nothing() -> None:
    heap = Heap()
    while await heap.look() or await heap.look():
        pass
    lasting = [bytes(60_000) for _ in range(500)]
    passing = [bytes(60_000) for _ in range(500)]
    kept = lasting[::20], passing[::20]
    full = _resident()
    del passing
    assert await heap.look() or await heap.look()
    del lasting
    assert await heap.look() or await heap.look()
    assert full - _resident() > 40 << 20
    assert len(kept[0]) == len(kept[1]) == 25


@pytest.mark.skipif(free_reader() is None, reason="this C library does not tell what is free")
async def test_pages_between_what_is_in_use_go_back_to_the_system() -> None:
    heap = Heap()
    while await heap.look() or await heap.look():
        pass
    pieces = [bytes(60_000) for _ in range(1_000)]
    kept = pieces[::20]
    full = _resident()
    del pieces
    # Where much else is free in this process, the first look may do; else it takes two.
    assert await heap.look() or await heap.look()
    assert full - _resident() > 40 << 20
    assert len(kept) == 50

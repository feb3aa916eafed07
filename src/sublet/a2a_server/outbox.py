"""Events on their way out, joined so that a chatty task makes a bounded number of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Generic, TypeVar

from sublet import deadlines

MIN_INTERVAL_SECONDS = 0.1

ItemT = TypeVar("ItemT")


class Outbox(Generic[ItemT]):
    """A queue of at most one item per key, whose reader gets no more than ten items a second.

    An item of a new lane (the first half of its key) does not wait: what happens next is news, more of the same
    is not.

    Args:
        key: lane and sub-lane of an item; there must be few of them, since each holds one pending item.
        merge: joins a pending item with a later one of the same key into one of bounded size.
    """

    def __init__(
        self, key: Callable[[ItemT], tuple[Hashable, Hashable]], merge: Callable[[ItemT, ItemT], ItemT]
    ) -> None:
        self._key = key
        self._merge = merge
        self._pending: dict[tuple[Hashable, Hashable], ItemT] = {}
        self._ready = asyncio.Event()
        self._hurry = asyncio.Event()
        self._lane: Hashable = None
        self._closed = False

    def put(self, item: ItemT) -> None:
        """Add ``item``; never waits."""
        key = self._key(item)
        self._pending[key] = self._merge(self._pending[key], item) if key in self._pending else item
        self._ready.set()
        if key[0] != self._lane:
            self._hurry.set()

    def close(self) -> None:
        """Let the reader take what is left, without pause, and end."""
        self._closed = True
        self._ready.set()
        self._hurry.set()

    async def items(self) -> AsyncIterator[ItemT]:
        """Yield the items until the box is closed and empty."""
        while True:
            await self._ready.wait()
            if not self._pending:
                if self._closed:
                    return
                self._ready.clear()
                continue
            key = next(iter(self._pending))
            self._lane = key[0]
            if not self._closed and all(lane == self._lane for lane, _ in self._pending):
                self._hurry.clear()
            yield self._pending.pop(key)
            try:
                async with deadlines.timeout(MIN_INTERVAL_SECONDS):
                    await self._hurry.wait()
            except TimeoutError:
                continue

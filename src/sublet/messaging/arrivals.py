"""What waits for the engine's thread: calls in order, and samples and queries in turn of who has signed them.

Whoever floods fills a queue of their own: in each batch everybody else's samples and queries come as soon as before,
and calls of this machine before all of them. Who signs is only claimed here; a forger can take somebody's turns, and
what is lost by that is asked for again.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from sublet.messaging.engine.network import Answer, Sample

MAX_WAITING: Final = 65_536
"""Samples and queries that wait."""
MAX_WAITING_BYTES: Final = 64 << 20
MAX_OF_SIGNER: Final = 16_384
MAX_BYTES_OF_SIGNER: Final = 16 << 20
"""Beyond all of these they are dropped, and a difference heals it."""
BATCH_BYTES: Final = 256 << 10
"""Of samples and queries that are taken at once; calls of this machine come in between, however large these are."""
MAX_SIGNERS: Final = 1_024
"""Queues; whoever comes beyond shares one."""
_HEAD_BYTES: Final = 3
_SIGNER_CHARS: Final = 320
_ASKER_BYTES: Final = 128
"""A question begins with the record of who asks, which is another one for each."""
_SHARED: Final = b"shared"


class Arrivals:
    """A queue that many threads fill and one empties."""

    def __init__(self) -> None:
        self._ready = threading.Condition(threading.Lock())
        self._calls: deque[Any] = deque()
        self._others: dict[bytes, deque[Sample | Answer]] = {}
        self._bytes: dict[bytes, int] = {}
        self._count = self._size = 0

    def put(self, item: Any) -> None:
        """Add a call, or what ends the thread; never refused."""
        with self._ready:
            self._calls.append(item)
            self._ready.notify()

    def offer(self, query: Answer) -> bool:
        """Add a query; tell whether there was room for it and for its asker."""
        return self._add(b"?" + query.payload[:_ASKER_BYTES], query, len(query.payload))

    def hear(self, sample: Sample) -> bool:
        """Add a sample; tell whether there was room for it and for its signer."""
        return self._add(b"!" + _signer(sample.payload), sample, _size(sample))

    def take(self, most: int) -> list[Any]:
        """Return what comes next, waiting for it: calls first, but no more than half where others wait."""
        with self._ready:
            while not self._calls and not self._others:
                self._ready.wait()
            batch: list[Any] = []
            calls = most - min(most // 2, self._count)
            while self._calls and len(batch) < calls:
                batch.append(self._calls.popleft())
            least = self._size - BATCH_BYTES
            while self._others and len(batch) < most and self._size > least:
                self._round(batch, most, least)
        return batch

    def rest(self) -> list[Any]:
        """Return all calls and queries that wait, and wait for nothing."""
        with self._ready:
            queries = [item for mine in self._others.values() for item in mine if not isinstance(item, Sample)]
            rest = [*self._calls, *queries]
            self._calls.clear()
            self._others.clear()
        return rest

    def _add(self, signer: bytes, item: Sample | Answer, size: int) -> bool:
        with self._ready:
            mine = self._others.get(signer)
            if mine is None and len(self._others) >= MAX_SIGNERS:
                signer = _SHARED
                mine = self._others.get(signer)
            if (
                self._count >= MAX_WAITING
                or self._size + size > MAX_WAITING_BYTES
                or (mine is not None and len(mine) >= MAX_OF_SIGNER)
                or self._bytes.get(signer, 0) + size > MAX_BYTES_OF_SIGNER
            ):
                return False
            if mine is None:
                mine = self._others[signer] = deque()
            mine.append(item)
            self._bytes[signer] = self._bytes.get(signer, 0) + size
            self._count += 1
            self._size += size
            self._ready.notify()
        return True

    def _round(self, batch: list[Any], most: int, least: int) -> None:
        """Take one of each signer, as long as more bytes than ``least`` are left."""
        for signer in list(self._others):
            if len(batch) >= most or self._size <= least:
                return
            mine = self._others.pop(signer)
            item = mine.popleft()
            size = _size(item)
            self._count -= 1
            self._size -= size
            self._bytes[signer] -= size
            if mine:
                self._others[signer] = mine  # behind all others now
            else:
                del self._bytes[signer]
            batch.append(item)


def _size(item: Sample | Answer) -> int:
    return len(item.payload) + (len(item.attachment) if isinstance(item, Sample) else 0)


def _signer(payload: bytes) -> bytes:
    length = int.from_bytes(payload[1:_HEAD_BYTES], "big")
    return payload[_HEAD_BYTES : _HEAD_BYTES + min(length, _SIGNER_CHARS)]

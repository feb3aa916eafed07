"""What waits for the engine's thread: calls and queries in order, and samples in turn of who has signed them.

A member who floods a room fills a queue of their own: in each batch everybody else's samples come as soon as before.
Who signs is only claimed here; a forger can take somebody's turns, whose updates then come with the next difference.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Final

from sublet.messaging.engine.backend import Sample

MAX_WAITING: Final = 65_536
"""Samples, or calls and queries, that wait."""
MAX_WAITING_BYTES: Final = 64 << 20
MAX_OF_SIGNER: Final = 16_384
MAX_BYTES_OF_SIGNER: Final = 16 << 20
"""Beyond all of these samples are dropped, and a difference heals it."""
MAX_SIGNERS: Final = 1_024
_HEAD_BYTES: Final = 3
_SIGNER_CHARS: Final = 320


class Arrivals:
    """A queue that many threads fill and one empties."""

    def __init__(self) -> None:
        self._ready = threading.Condition(threading.Lock())
        self._calls: deque[Any] = deque()
        self._samples: dict[bytes, deque[Sample]] = {}
        self._bytes: dict[bytes, int] = {}
        self._count = self._size = 0

    def put(self, item: Any) -> None:
        """Add a call, or what ends the thread; never refused."""
        with self._ready:
            self._calls.append(item)
            self._ready.notify()

    def offer(self, item: Any) -> bool:
        """Add a query; tell whether there was room."""
        with self._ready:
            if len(self._calls) >= MAX_WAITING:
                return False
            self._calls.append(item)
            self._ready.notify()
        return True

    def hear(self, sample: Sample) -> bool:
        """Add a sample; tell whether there was room for it and for its signer."""
        signer = _signer(sample.payload)
        size = len(sample.payload) + len(sample.attachment)
        with self._ready:
            mine = self._samples.get(signer)
            if (
                self._count >= MAX_WAITING
                or self._size + size > MAX_WAITING_BYTES
                or (mine is None and len(self._samples) >= MAX_SIGNERS)
                or (mine is not None and len(mine) >= MAX_OF_SIGNER)
                or self._bytes.get(signer, 0) + size > MAX_BYTES_OF_SIGNER
            ):
                return False
            if mine is None:
                mine = self._samples[signer] = deque()
            mine.append(sample)
            self._bytes[signer] = self._bytes.get(signer, 0) + size
            self._count += 1
            self._size += size
            self._ready.notify()
        return True

    def take(self, most: int) -> list[Any]:
        """Return what comes next, waiting for it: calls and queries first, but no more than half where samples wait."""
        with self._ready:
            while not self._calls and not self._samples:
                self._ready.wait()
            batch: list[Any] = []
            calls = most - min(most // 2, self._count)
            while self._calls and len(batch) < calls:
                batch.append(self._calls.popleft())
            while self._samples and len(batch) < most:
                self._round(batch, most)
        return batch

    def rest(self) -> list[Any]:
        """Return all that waits, and wait for nothing."""
        with self._ready:
            rest = list(self._calls)
            self._calls.clear()
            self._samples.clear()
        return rest

    def _round(self, batch: list[Any], most: int) -> None:
        """Take one sample of each signer."""
        for signer in list(self._samples):
            if len(batch) >= most:
                return
            mine = self._samples.pop(signer)
            sample = mine.popleft()
            size = len(sample.payload) + len(sample.attachment)
            self._count -= 1
            self._size -= size
            self._bytes[signer] -= size
            if mine:
                self._samples[signer] = mine  # behind all others now
            else:
                del self._bytes[signer]
            batch.append(sample)


def _signer(payload: bytes) -> bytes:
    length = int.from_bytes(payload[1:_HEAD_BYTES], "big")
    return payload[_HEAD_BYTES : _HEAD_BYTES + min(length, _SIGNER_CHARS)]

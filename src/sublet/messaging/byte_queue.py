"""A queue of what peers have sent, bounded in number and in bytes; any thread may fill and empty it."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")


class ByteQueue(Generic[ItemT]):
    """Keeps items in order until they are taken.

    Args:
        most: items that may wait.
        most_bytes: bytes that all of them together may have.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._waiting: deque[tuple[ItemT, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def put(self, item: ItemT, size: int) -> bool:
        """Add an item of ``size`` bytes; tell whether there was room for it."""
        with self._lock:
            if len(self._waiting) >= self._most or self._bytes + size > self._most_bytes:
                return False
            self._waiting.append((item, size))
            self._bytes += size
        return True

    def take(self) -> ItemT | None:
        """Return the first item; None where none waits."""
        with self._lock:
            if not self._waiting:
                return None
            item, size = self._waiting.popleft()
            self._bytes -= size
        return item

"""The one thread that forwards, and what waits for it: within bounds for each sender, and each sender in turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from sublet.messaging.running.fair_queue import ITEM_BYTES, Bounds, FairQueue

log = structlog.get_logger(__name__)

QUEUE: Final = Bounds(items=50_000, size=64 << 20, items_of_owner=5_000, size_of_owner=16 << 20)
"""What waits, of all senders and of one."""
STOP_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """Something to be done.

    Args:
        run: does it, on the forwarder's thread.
        lost: called where there is no room for it.
    """

    run: Callable[[], None]
    lost: Callable[[], None] = lambda: None


class Forwarder:
    """Does what waits; any thread may call."""

    def __init__(self) -> None:
        self._queue: FairQueue[Work] = FairQueue(QUEUE)
        self._urgent: deque[Callable[[], None]] = deque()
        self._ready = threading.Condition()
        self._closing = False
        self.lost = 0
        """How much found no room."""
        self._thread = threading.Thread(target=self._run, name="relay-forwarder", daemon=True)
        self._thread.start()

    def add(self, sender: str, size: int, work: Work) -> None:
        """Do something of a sender in its turn, if there is room.

        Args:
            sender: whose share it takes.
            size: bytes that it holds.
            work: what is done.
        """
        with self._ready:
            lost = [work] if self._closing else self._queue.add(sender.encode(), work, size + ITEM_BYTES)
            self.lost += len(lost)
            self._ready.notify()
        for one in lost:
            one.lost()

    def soon(self, run: Callable[[], None]) -> None:
        """Do something before all that waits; whoever calls bounds how much that is."""
        with self._ready:
            self._urgent.append(run)
            self._ready.notify()

    def waiting(self) -> tuple[int, int]:
        """Return how much waits, and its bytes."""
        return len(self._queue), self._queue.size

    def close(self) -> None:
        """Do no more, hold no more, and end the thread."""
        with self._ready:
            self._closing = True
            self._queue.clear()
            self._urgent.clear()
            self._ready.notify()
        self._thread.join(STOP_SECONDS)

    def _run(self) -> None:
        while (run := self._next()) is not None:
            try:
                run()
            except Exception:  # what one client sends must not end what carries all others
                log.exception("something of a client could not be forwarded")

    def _next(self) -> Callable[[], None] | None:
        with self._ready:
            while not self._closing:
                if self._urgent:
                    return self._urgent.popleft()
                if (work := self._queue.take()) is not None:
                    return work.run
                self._ready.wait()
        return None

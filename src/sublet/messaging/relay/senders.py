"""How much each client may send, and who goes on with too much. Any thread may call."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sublet.messaging.relay.buckets import Buckets, Rate

PIECE_BYTES: Final = 4 << 10
"""A larger message counts as one for each piece."""
CONTROL_COST: Final = 32
"""As how many messages something counts that a client tells the relay itself."""
FLOOD_SECONDS: Final = 5.0
"""Whoever has sent too much for so long, without a pause, is cut."""
PAUSE_SECONDS: Final = 1.0


@dataclass(slots=True)
class _Flood:
    since: float
    last: float


class Senders:
    """Counts what slots send.

    Args:
        rate: messages of each.
        clock: seconds that never go back.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic) -> None:
        self._buckets = Buckets(rate, clock)
        self._clock = clock
        self._lock = threading.Lock()
        self._floods: dict[str, _Flood] = {}
        self.dropped = 0
        """Messages of those who have sent too much."""

    def change(self, rate: Rate) -> None:
        """Let another rate hold from now on."""
        with self._lock:
            self._buckets.rate = rate

    def may_send(self, slot: str, size: int, *, is_control: bool = False) -> bool:
        """Count a message of so many bytes, and tell whether its slot may send it now."""
        cost = 1 + size // PIECE_BYTES + (CONTROL_COST if is_control else 0)
        with self._lock:
            if self._buckets.take(slot, cost):
                return True
            self.dropped += 1
            now, flood = self._clock(), self._floods.get(slot)
            if flood is None or now - flood.last > PAUSE_SECONDS:
                self._floods[slot] = _Flood(now, now)
            else:
                flood.last = now
            return False

    def floods(self, slot: str) -> bool:
        """Tell whether a slot has sent too much for ``FLOOD_SECONDS``; it begins anew then."""
        with self._lock:
            flood = self._floods.get(slot)
            if flood is None or flood.last - flood.since < FLOOD_SECONDS:
                return False
            del self._floods[slot]
            return True

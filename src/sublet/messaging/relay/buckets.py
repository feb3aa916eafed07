"""Token buckets: how much each slot, or each address, may send. Bounded in number and in memory."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

MAX_BUCKETS: Final = 65_536
"""Of those who have sent something lately; whoever is forgotten begins anew with a full one."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How much may be sent.

    Args:
        per_second: in the long run.
        burst: at once, after a pause.
    """

    per_second: float
    burst: float


class Buckets:
    """A bucket for each name.

    Args:
        rate: of each of them; another one counts from the next call on.
        clock: seconds that never go back.
        most: how many buckets are remembered.
    """

    def __init__(self, rate: Rate, clock: Callable[[], float] = time.monotonic, most: int = MAX_BUCKETS) -> None:
        self.rate = rate
        self._clock = clock
        self._most = most
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, amount: float = 1.0) -> bool:
        """Take something out of a bucket; tell whether it held as much. What it does not hold is not taken."""
        now = self._clock()
        left, looked = self._left.pop(name, (self.rate.burst, now))
        left = min(self.rate.burst, left + (now - looked) * self.rate.per_second)
        holds = left >= amount
        self._left[name] = (left - amount if holds else left), now
        if len(self._left) > self._most:
            self._left.popitem(last=False)
        return holds

    def forget(self, name: str) -> None:
        """Let whoever has this name begin anew with a full one."""
        self._left.pop(name, None)

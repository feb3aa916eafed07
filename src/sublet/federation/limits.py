"""How much of one node, and of one agent of it, is taken: a bucket for each, which fills as time goes on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

MAX_BUCKETS: Final = 8_192
"""Whoever is forgotten begins anew with a full one."""


class Rate:
    """A bucket for each name.

    Args:
        per_second: in the long run.
        burst: at once, after a pause.
        steady: seconds that never go back.
    """

    def __init__(self, per_second: float, burst: float, steady: Callable[[], float]) -> None:
        self._per_second = per_second
        self._burst = burst
        self._steady = steady
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, name: str, amount: float = 1.0) -> bool:
        """Take something out; tell whether there was as much. What there is not is not taken."""
        now = self._steady()
        left, looked = self._left.pop(name, (self._burst, now))
        left = min(self._burst, left + (now - looked) * self._per_second)
        holds = left >= amount
        self._left[name] = (left - amount if holds else left), now
        if len(self._left) > MAX_BUCKETS:
            self._left.popitem(last=False)
        return holds

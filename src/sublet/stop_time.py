"""The one deadline of a daemon's stop, which all its stages share; imports nothing of ours.

Stages run one after another, and each has a bound of its own for what hangs. Their sum is no bound that anybody would
wait for, so no stage gets more than what is left of the whole. A daemon's tasks, and the threads that they hand work
to, find its deadline in their context: two daemons in one process have two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

STOP_SECONDS: Final = 3.6
"""For all stages together."""


class StopTime:
    """When the stop of one daemon has to be over.

    Args:
        seconds: for the whole of it.
        clock: returns monotonic seconds.
    """

    def __init__(self, seconds: float = STOP_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._ends: float | None = None

    def begin(self) -> None:
        """Begin to count, unless it has begun."""
        if self._ends is None:
            self._ends = self._clock() + self._seconds

    def left(self, most: float) -> float:
        """Return ``most``, or once the stop has begun the seconds that are left of it where they are fewer."""
        return most if self._ends is None else max(0.0, min(most, self._ends - self._clock()))

    def use(self) -> None:
        """Be the deadline of all tasks that this one starts from now on, and of this one."""
        _of_daemon.set(self)


_of_daemon: ContextVar[StopTime | None] = ContextVar("stop time", default=None)


def within(most: float) -> float:
    """Return how many seconds an orderly end may take: ``most``, or what is left of the stop of this daemon."""
    stop = _of_daemon.get()
    return most if stop is None else stop.left(most)

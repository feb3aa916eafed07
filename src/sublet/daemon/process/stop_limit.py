"""Ends the process where its stop hangs, whatever hangs: the last resort after the bounds of all stages.

A call into a mount that is dead, or a thread that never returns, can hold up what no bound of ours cuts: Python waits
for its threads at the end. What is left behind then is what a daemon that was killed leaves, and the next start takes
it over. What was acknowledged is on disk by then, as always.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import structlog

from sublet.tasks import ServiceHealth

CUT_SECONDS: Final = 4.4
"""From the beginning of the stop to its end by force; orderly stages are over by ``stop_time.STOP_SECONDS``."""
LOG_SECONDS: Final = 0.2
"""For the words about it, where the log hangs as well."""

log = structlog.get_logger(__name__)


class StopLimit:
    """The bound of one process's stop.

    Args:
        end: ends the process with a status.
        health: returns how its services are.
        seconds: before it is cut.
    """

    def __init__(
        self,
        end: Callable[[int], object] = os._exit,
        health: Callable[[], Sequence[ServiceHealth]] = lambda: (),
        seconds: float = CUT_SECONDS,
    ) -> None:
        self._end = end
        self._health = health
        self._seconds = seconds

    def begin(self, status: int) -> None:
        """Cut the stop off in time, and end with ``status``; returns at once."""
        with suppress(RuntimeError):  # no thread is left; the bounds of the stages hold as well
            threading.Thread(target=self._wait, args=(status,), name="stop limit", daemon=True).start()

    def _wait(self, status: int) -> None:
        time.sleep(self._seconds)
        try:
            telling = threading.Thread(target=self._tell, name="stop limit's words", daemon=True)
            telling.start()
            telling.join(LOG_SECONDS)
        finally:
            self._end(status)

    def _tell(self) -> None:
        with suppress(Exception):  # the end comes, whatever fails here
            hanging = [one.name for one in self._health() if one.state != "stopped"]
            log.warning("the stop was cut off, since some of it hangs; the next start takes over the rest", of=hanging)

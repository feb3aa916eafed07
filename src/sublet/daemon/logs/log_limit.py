"""Keeps what callers cause from pushing everything else out of the log: a few entries a minute from each place in code.

The place is what is counted, since its number is bounded by the program, whatever words a stranger puts into entries.
What is left out is counted, and the count is written as soon as the minute is over and anything is logged. A place of
which something was left out is counted for twice as long the next time, up to an hour; so one that goes on for days
writes some entries an hour.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

PER_MINUTE: Final = 20
"""Entries that each place in code writes within a minute."""
WINDOW_SECONDS: Final = 60.0
MAX_WINDOW_SECONDS: Final = 3_600.0
MAX_PLACES: Final = 4_096
"""Places that are counted; a program has some hundreds. Those beyond are counted as one."""
_COUNTS: Final = "sublet_counts"

_Place = tuple[str, int]
_BEYOND: Final[_Place] = ("", 0)


@dataclass(slots=True)
class _Window:
    name: str
    level: int
    began: float
    seconds: float
    count: int = 0

    @property
    def was_too_much(self) -> bool:
        """Whether something was left out."""
        return self.count > PER_MINUTE


class LogLimit(logging.Filter):
    """Lets a handler write at most ``PER_MINUTE`` entries a minute from one place in code.

    Args:
        handler: writes the counts of what was left out.
        clock: seconds that never go back.
    """

    def __init__(self, handler: logging.Handler, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._handler = handler
        self._clock = clock
        self._lock = threading.Lock()
        self._windows: dict[_Place, _Window] = {}
        self._seconds: dict[_Place, float] = {}
        """For how long places are counted of which something was left out the last time."""
        self._next_look = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the entry is written."""
        if hasattr(record, _COUNTS):
            return True
        now = self._clock()
        with self._lock:
            over = self._over(now)
            window = self._window(record, now)
            window.count += 1
            written = window.count <= PER_MINUTE
        for place, ended in over:
            self._handler.handle(_counted(place, ended))
        return written

    def _window(self, record: logging.LogRecord, now: float) -> _Window:
        place = (record.pathname, record.lineno)
        if place not in self._windows and len(self._windows) >= MAX_PLACES:
            place = _BEYOND
        window = self._windows.get(place)
        if window is None:
            seconds = self._seconds.get(place, WINDOW_SECONDS)
            window = self._windows[place] = _Window(record.name, record.levelno, now, seconds)
            self._next_look = min(self._next_look, now + seconds)
        return window

    def _over(self, now: float) -> list[tuple[_Place, _Window]]:
        """Forget the windows that are over, and return those in which something was left out."""
        if now < self._next_look:
            return []
        ended = [one for one in self._windows.items() if now - one[1].began >= one[1].seconds]
        for place, window in ended:
            del self._windows[place]
            if window.was_too_much:
                self._seconds[place] = min(2 * window.seconds, MAX_WINDOW_SECONDS)
            else:
                self._seconds.pop(place, None)
        ends = [window.began + window.seconds for window in self._windows.values()]
        self._next_look = min(ends, default=now + WINDOW_SECONDS)
        return [(place, window) for place, window in ended if window.was_too_much]


def _counted(place: _Place, window: _Window) -> logging.LogRecord:
    text = "%d more entries like the %d before from here were left out within %s"
    minutes = round(window.seconds / 60)
    arguments = (window.count - PER_MINUTE, PER_MINUTE, "a minute" if minutes <= 1 else f"{minutes} minutes")
    record = logging.LogRecord(window.name, window.level, place[0], place[1], text, arguments, None)
    setattr(record, _COUNTS, True)
    return record

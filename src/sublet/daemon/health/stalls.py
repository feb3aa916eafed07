"""Measures how long the event loop is kept from everybody else, and by what.

The loop's ``select`` is wrapped: the time between its return and its next call is one turn of the loop, in which nobody
else is served. A thread looks at the stack of the loop's thread while a turn lasts too long; it sleeps without waking
up while the loop is idle, so that an idle daemon pays nothing.

Weak: code that holds Python's global lock, such as a regular expression, is sampled right after it, in the function
that called it. On a loop without a selector nothing is measured.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import anyio
import structlog

from sublet.daemon.api.daemon import StallView
from sublet.daemon.times import rfc3339

STALL_SECONDS: Final = 0.25
"""A turn of the loop that takes longer is told."""
LOOK_SECONDS: Final = 0.1
"""How often the thread looks at a loop that is at work."""
SELECTOR: Final = "_selector"
"""Where asyncio's event loops keep what they wait with; it has no public name."""
MAX_KEPT: Final = 32
MAX_DEPTH: Final = 200
"""Frames that are looked through for one of ours."""
OURS: Final = "sublet."

log = structlog.get_logger(__name__)


def missing() -> list[str]:
    """Return the private parts that this Python's event loop lacks, by their names; nothing is the usual case."""
    loop = asyncio.new_event_loop()
    try:
        return [] if hasattr(loop, SELECTOR) else [f"the event loop's {SELECTOR}"]
    finally:
        loop.close()


class Stalls:
    """The stalls of the loop on which ``serve`` runs.

    Args:
        clock: returns monotonic seconds.
        look_seconds: between two looks of the thread.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, look_seconds: float = LOOK_SECONDS) -> None:
        self._clock = clock
        self._look_seconds = look_seconds
        self._kept: deque[StallView] = deque(maxlen=MAX_KEPT)
        self.count = 0
        self._turn = 0
        self._began: float | None = None
        self._cpu = 0.0
        self._samples: tuple[int, Counter[str]] = (0, Counter())
        self._parked = False
        self._wake = threading.Semaphore(0)
        self._stopped = threading.Event()

    @property
    def newest(self) -> list[StallView]:
        """The last stalls, the newest first."""
        return list(reversed(self._kept))

    async def serve(self) -> None:
        """Measure until cancelled."""
        selector: Any = getattr(asyncio.get_running_loop(), SELECTOR, None)
        if selector is None:
            log.warning("stalls are not measured: this event loop has no selector")
            await anyio.sleep_forever()
        before = selector.select
        going = True

        def select(timeout: float | None = None) -> Any:
            if not going:
                return before(timeout)
            self._ends()
            found = before(timeout)
            self._begins()
            return found

        self._stopped.clear()
        watching = threading.Thread(target=self._watch, args=(threading.get_ident(),), name="stall watch", daemon=True)
        selector.select = select
        watching.start()
        try:
            await anyio.sleep_forever()
        finally:
            going = False
            if selector.select is select:
                # Where another daemon of this process has wrapped it since, ours only passes through.
                selector.select = before
            self._stopped.set()
            self._wake.release()

    # On the loop's thread

    def _begins(self) -> None:
        self._turn += 1
        self._cpu = time.thread_time()
        self._began = self._clock()
        if self._parked:
            self._parked = False
            self._wake.release()

    def _ends(self) -> None:
        began, self._began = self._began, None
        if began is None:
            return
        seconds = self._clock() - began
        if seconds >= STALL_SECONDS:
            self._told(seconds, time.thread_time() - self._cpu)

    def _told(self, seconds: float, cpu_seconds: float) -> None:
        turn, samples = self._samples
        ran = samples.most_common(1)[0][0] if turn == self._turn and samples else ""
        stall = StallView(
            at=rfc3339(time.time() - seconds),
            milliseconds=round(seconds * 1000),
            cpu_milliseconds=round(cpu_seconds * 1000),
            ran=ran,
        )
        self._kept.append(stall)
        self.count += 1
        log.warning(
            "the daemon was kept from everybody else",
            milliseconds=stall.milliseconds,
            cpu_milliseconds=stall.cpu_milliseconds,
            ran=ran or "not seen",
        )

    # On the thread of its own

    def _watch(self, thread_id: int) -> None:
        while not self._stopped.is_set():
            if self._began is None:
                # Set before it is looked at again, so that a turn that begins meanwhile is not missed.
                self._parked = True
                if self._began is None:
                    self._wake.acquire()
                self._parked = False
            if not self._stopped.wait(self._look_seconds):
                self._sample(thread_id)

    def _sample(self, thread_id: int) -> None:
        turn, began = self._turn, self._began
        if began is None or self._clock() - began < self._look_seconds:
            return
        frame = frame_of(thread_id)
        if frame is not None and turn == self._turn:
            if self._samples[0] != turn:
                self._samples = (turn, Counter())
            self._samples[1][running_in(frame)] += 1


def frame_of(thread_id: int) -> FrameType | None:
    """Return where a thread stands, without a collection of garbage meanwhile.

    While Python lists the frames of all threads it holds a lock that a new thread needs. A collection runs code that
    lets other threads go on; one of them that starts a thread then waits for the lock and lets nobody go on, for good.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames().get(thread_id)
    finally:
        if collects:
            gc.enable()


def running_in(frame: FrameType | None) -> str:
    """Return ``module:function`` of the innermost frame of ours and, where it called something else, of that too."""
    inner = ours = ""
    for _ in range(MAX_DEPTH):
        if frame is None or ours:
            break
        where = f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
        inner = inner or where
        if where.startswith(OURS):
            ours = where
        frame = frame.f_back
    return f"{ours} (in {inner})" if ours and ours != inner else ours or inner

"""How long the event loop works for each member, measured: what it parses, decides and sends for it.

The library handles each event in a task of its own, and asyncio shares the loop out by tasks. A member with many events
under way would get as many shares; so it is not read from while it has had more than its part, and after that only once
nobody else has anything to do. Time is that of the clock, not of the processor: while others of the machine have it, a
member holds up the loop as well.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio

WITHIN_SECONDS: Final = 1.0
"""Who had the loop work for it within this time is at work."""
MAX_AT_WORK: Final = 1_024
"""Members that are remembered; more are more than two in any case."""
PAIR: Final = 2
"""An Agent and its Computer: as long as nobody else is at work, they may have all of the loop."""

QUIET_SECONDS: Final = 0.0005
"""A turn of the loop that takes no longer has nothing to do for anybody."""
MOST_SECONDS: Final = 0.25
"""How long a member waits for such a turn: a loop that is always at work serves it as well, a little."""

T = TypeVar("T")


class Counts(Protocol):
    """Counts how long the loop works for somebody."""

    def worked(self, seconds: float) -> None:
        """Count so many seconds more."""


class AtWork:
    """Who has had the loop work for it lately."""

    def __init__(self) -> None:
        self._last: OrderedDict[object, float] = OrderedDict()

    def note(self, who: object) -> None:
        """Take note that the loop works for ``who``."""
        self._last.pop(who, None)
        self._last[who] = anyio.current_time()
        if len(self._last) > MAX_AT_WORK:
            self._last.popitem(last=False)

    def forget(self, who: object) -> None:
        """Forget somebody."""
        self._last.pop(who, None)

    @property
    def crowded(self) -> bool:
        """Whether more than two are at work."""
        since = anyio.current_time() - WITHIN_SECONDS
        while self._last and next(iter(self._last.values())) < since:
            self._last.popitem(last=False)
        return len(self._last) > PAIR


async def nobody_waits() -> None:
    """Return once the loop has nothing to do for others, or after ``MOST_SECONDS``."""
    until = time.perf_counter() + MOST_SECONDS
    while time.perf_counter() < until:
        begun = time.thread_time()  # of the processor: other programs of the machine are no work of the loop
        await asyncio.sleep(0)
        if time.thread_time() - begun < QUIET_SECONDS:
            return


@contextmanager
def counted(counts: Counts | None) -> Iterator[None]:
    """Count what is done meanwhile, which waits for nothing."""
    begun = time.perf_counter()
    try:
        yield
    finally:
        if counts is not None:
            counts.worked(time.perf_counter() - begun)


class Counted(Generic[T]):
    """Awaits ``work``, and tells ``counts`` how long the loop works at it."""

    def __init__(self, counts: Counts, work: Coroutine[Any, Any, T]) -> None:
        self._counts = counts
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        came: Any = None
        thrown: BaseException | None = None
        while True:
            begun = time.perf_counter()
            try:
                step = partial(steps.send, came) if thrown is None else partial(steps.throw, thrown)
                # An error that is kept here would keep all that its frames hold until Python looks for circles.
                came, thrown = None, None
                waits_for = step()
            except StopIteration as end:
                found: T = end.value
                return found
            finally:
                del step
                self._counts.worked(time.perf_counter() - begun)
            try:
                came = yield waits_for
            except BaseException as error:  # it is for the work: a cancellation, say
                thrown = error

"""Counts what a probe does, by lines of Python and by bytes, so that no test has to look at a clock."""

from __future__ import annotations

import gc
import re
import sys
import threading
import tracemalloc
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final

import anyio
import structlog

from attacks.probe import CostProbe, FailureProbe, KeptProbe, Probe

THREAD_SECONDS: Final = 1.0


class Tracing:
    """Counts the lines of Python that run while it is entered, and notes the functions of ``sublet`` among them.

    Threads that begin meanwhile are counted as well.

    Args:
        counts: whether lines are wanted; to note functions alone is many times faster.
        until: what a probe covers. Where no lines are wanted, nothing is looked at once all of that has run, since
            whatever is looked at takes twice as long. Without it, everything is noted.
    """

    def __init__(self, *, counts: bool = True, until: Collection[str] = ()) -> None:
        self._lines = 0
        self._codes: dict[int, CodeType] = {}  # by identity: codes of two modules may be equal
        self._names: set[str] = set()
        self._missing = {*until}
        self._is_over = False
        self._ends = not counts and bool(until)
        self._trace = self._looking(counts)

    @property
    def lines(self) -> int:
        """The lines that ran."""
        return self._lines

    @property
    def entered(self) -> frozenset[str]:
        """The functions of ``sublet`` that ran."""
        return frozenset(self._names)

    def __enter__(self) -> Tracing:
        self._before = sys.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *failure: object) -> None:
        sys.settrace(self._before)
        threading.settrace(None)

    def _looking(self, counts: bool) -> Callable[[FrameType, str, Any], Any]:
        """Return what Python calls as a function begins. Each line of a probe goes through here: it is short."""
        codes, note = self._codes, self._note

        def line(_: FrameType, event: str, __: Any) -> Any:
            if event == "line":
                self._lines += 1
            return line

        each = line if counts else None

        def begins(frame: FrameType, _: str, __: Any) -> Any:
            if self._is_over:
                sys.settrace(None)  # of this thread; each comes by here once
            elif id(frame.f_code) not in codes:
                note(frame)
            return each

        return begins

    def _note(self, frame: FrameType) -> None:
        self._codes[id(frame.f_code)] = frame.f_code
        if (name := place(frame)) is not None and name not in self._names:
            self._names.add(name)
            if self._ends:
                # A copy: other threads note, too.
                self._missing.intersection_update(not_entered(tuple(self._missing), (name,)))
                self._is_over = not self._missing


def lines_run(call: Callable[[], object]) -> int:
    """Return how many lines of Python ``call`` runs through."""
    with Tracing() as seen:
        call()
    return seen.lines


_places: dict[int, tuple[CodeType, str | None]] = {}
"""By identity: codes of two modules may be equal."""


def place(frame: FrameType) -> str | None:
    """Return what a running function of ``sublet`` is called in ``covers``; None for others."""
    code = frame.f_code
    known = _places.get(id(code))
    if known is None:
        module, name = frame.f_globals.get("__name__", ""), None
        if module.startswith("sublet."):
            name = f"{module.removeprefix('sublet.')}:{code.co_qualname.replace('<locals>.', '')}"
        known = _places[id(code)] = code, name
    return known[1]


def not_entered(covers: Iterable[str], entered: Collection[str]) -> list[str]:
    """Return what a probe says that it covers and did not run through.

    What stands in the body of a module (``package.module:module``, or a constant as ``package.module:_NAME``) needs any
    function of that module; a bare name stands for a method as well.
    """
    modules = {name.partition(":")[0] for name in entered}
    bare = {re.sub(r":.*\.", ":", name) for name in entered}
    return [
        name
        for name in covers
        if name not in entered and name not in bare and not (_is_of_body(name) and name.partition(":")[0] in modules)
    ]


def _is_of_body(name: str) -> bool:
    what = name.partition(":")[2]
    return what == "module" or what.isupper()


@dataclass(frozen=True, slots=True)
class Counted:
    """What came of a probe.

    Args:
        growth: the lines run at twice the size by those at the size; 1 for what is no cost.
        there: bytes of Python that are kept while the peer is there.
        left: bytes that are kept after it has gone.
        entered: the functions that it ran through; where it was told what to cover, at least until all of that had run.
    """

    entered: frozenset[str]
    growth: float = 1.0
    there: int = 0
    left: int = 0


@contextmanager
def _nothing_drawn() -> Iterator[None]:
    """Let the product log, and draw nothing of it: how tests draw entries is neither its cost nor kept by it."""
    before = structlog.get_config()
    structlog.configure(processors=[_dropped])
    try:
        yield
    finally:
        structlog.configure(**before)


def _dropped(*_: object) -> Any:
    raise structlog.DropEvent


@cache
@_nothing_drawn()
def count_cost(probe: CostProbe, covers: Collection[str] = ()) -> Counted:
    """Run a cost probe at its size and at twice that."""
    small, large = probe.make(probe.size), probe.make(2 * probe.size)
    with Tracing(
        counts=False, until=covers
    ) as first:  # what is made once, such as imports and caches of patterns, belongs to neither
        probe.run(probe.make(64))
    with Tracing() as once:
        probe.run(small)
    with Tracing() as twice:
        probe.run(large)
    entered = first.entered | once.entered | twice.entered
    return Counted(entered, growth=max(twice.lines, 1) / max(once.lines, 1))


@cache
@_nothing_drawn()
def count_kept(probe: KeptProbe, covers: Collection[str] = ()) -> Counted:
    """Count what a peer makes the product keep."""
    with Tracing(counts=False, until=covers) as first, probe.attack():  # what is made once belongs to nobody
        pass
    gc.collect()
    gc.freeze()  # what is there already need not be looked through each time, here and in what comes after
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with probe.attack() as part:
            _let_threads_end()
            gc.collect()
            there = tracemalloc.get_traced_memory()[0] - before
        _let_threads_end()
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
        del part
    finally:
        tracemalloc.stop()
    return Counted(first.entered, there=there, left=left)


def _let_threads_end() -> None:
    """Wait for threads that have told their result and still hold it for the moment that they take to end."""
    for thread in threading.enumerate():
        if thread.name.startswith("background "):
            thread.join(THREAD_SECONDS)


@cache
def count_failure(probe: FailureProbe, covers: Collection[str] = ()) -> Counted:
    """Throw a failure."""
    with Tracing(counts=False, until=covers) as seen:
        anyio.run(probe.throw)
    return Counted(seen.entered)


def count(probe: Probe) -> Counted:
    """Count what a probe of any kind does; nothing of a reason."""
    if isinstance(probe, CostProbe):
        return count_cost(probe)
    if isinstance(probe, KeptProbe):
        return count_kept(probe)
    return count_failure(probe) if isinstance(probe, FailureProbe) else Counted(frozenset())

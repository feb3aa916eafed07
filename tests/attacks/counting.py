"""Counts what a probe does, by lines of Python and by bytes, so that no test has to look at a clock."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Collection
from types import FrameType
from typing import Any

from attacks.probe import CostProbe, KeptProbe, Probe


class Tracing:
    """Counts the lines of Python that run while it is entered, and notes the functions of ``sublet`` among them.

    Threads that begin meanwhile are counted as well.
    """

    def __init__(self) -> None:
        self.lines = 0
        self.entered: set[str] = set()

    def __enter__(self) -> Tracing:
        self._before = sys.gettrace()
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        return self

    def __exit__(self, *failure: object) -> None:
        sys.settrace(self._before)
        threading.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call" and (name := place(frame)) is not None:
            self.entered.add(name)
        elif event == "line":
            self.lines += 1
        return self._trace


def place(frame: FrameType) -> str | None:
    """Return what a running function of ``sublet`` is called in ``covers``; None for others."""
    module = frame.f_globals.get("__name__", "")
    if not module.startswith("sublet."):
        return None
    return f"{module.removeprefix('sublet.')}:{frame.f_code.co_qualname.replace('<locals>.', '')}"


def not_entered(probe: Probe, entered: Collection[str]) -> list[str]:
    """Return what a probe claims to cover and did not run through.

    A pattern that stands in the body of a module (``package.module:module``) needs any function of that module.
    """
    modules = {name.partition(":")[0] for name in entered}
    return [
        name
        for name in probe.covers
        if name not in entered and not (name.endswith(":module") and name.partition(":")[0] in modules)
    ]


def growth(probe: CostProbe) -> float:
    """Return the lines run at twice the size by those at the size."""
    small, large = probe.make(probe.size), probe.make(2 * probe.size)
    probe.run(probe.make(64))  # what is made once, such as imports and caches of patterns, belongs to neither
    with Tracing() as once:
        probe.run(small)
    with Tracing() as twice:
        probe.run(large)
    assert not not_entered(probe, once.entered | twice.entered), "it does not run through what it covers"
    return max(twice.lines, 1) / max(once.lines, 1)


def kept(probe: KeptProbe) -> tuple[int, int]:
    """Return the bytes of Python that are kept while the peer is there, and after it has gone."""
    with Tracing() as first, probe.attack():  # what is made once belongs to nobody
        pass
    assert not not_entered(probe, first.entered), "it does not run through what it covers"
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        with probe.attack() as part:
            gc.collect()
            there = tracemalloc.get_traced_memory()[0] - before
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
        del part
        return there, left
    finally:
        tracemalloc.stop()

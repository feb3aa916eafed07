"""Counts what a probe does, by lines of Python and by bytes, so that no test has to look at a clock."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any

from attacks.probe import CostProbe, KeptProbe


def lines_run(call: Callable[[], object]) -> int:
    """Return how many lines of Python ``call`` runs through, whatever it returns."""
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if event == "line":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def growth(probe: CostProbe) -> float:
    """Return the lines run at twice the size by those at the size."""
    small, large = probe.make(probe.size), probe.make(2 * probe.size)
    probe.run(probe.make(64))  # what is made once, such as imports and caches of patterns, belongs to neither
    base = lines_run(lambda: None)
    return max(lines_run(lambda: probe.run(large)) - base, 1) / max(lines_run(lambda: probe.run(small)) - base, 1)


def kept(probe: KeptProbe) -> tuple[int, int]:
    """Return the bytes of Python that are kept while the peer is there, and after it has gone."""
    with probe.attack():  # what is made once belongs to nobody
        pass
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

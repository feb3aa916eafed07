"""Keeps Python's collector from looking through what was loaded, which stays until the end.

A daemon loads what few need, such as the SDK of MCP, when it is needed first: a hundred thousand objects. Each full
collection would look through all of them again, 60 ms in which nobody is served, and a peer that makes garbage decides
how often. So what is there once the daemon is ready is left out, and what is there after each larger load.

Weak: what else is alive in these few moments is left out, too, and stays where it becomes part of a cycle later.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Final

LEAST_MODULES: Final = 16
"""A load of fewer is not worth a full collection, which comes before: what is garbage by then must not stay."""


def count_modules() -> int:
    """Return how many modules are loaded."""
    return len(sys.modules)


def leave_out() -> None:
    """Collect garbage, and leave out all that is there from now on."""
    gc.collect()
    gc.freeze()


class Loaded:
    """What was loaded, looked at now and then.

    Args:
        count: returns how many modules are loaded.
        leave_out: has the collector leave out what is there.
    """

    def __init__(self, count: Callable[[], int] = count_modules, leave_out: Callable[[], None] = leave_out) -> None:
        self._count = count
        self._leave_out = leave_out
        self._left_out = self._before = 0

    def ready(self) -> None:
        """Leave out what was loaded and made to start."""
        self._leave_out()
        self._left_out = self._before = self._count()

    def look(self) -> bool:
        """Leave out what was loaded since, once nothing more comes; tell whether there was anything."""
        count, before = self._count(), self._before
        self._before = count
        if count != before or count - self._left_out < LEAST_MODULES:
            return False
        self._leave_out()
        self._left_out = count
        return True

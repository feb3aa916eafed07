"""An event loop whose time passes only while nothing can be done: hours of waiting take none, and runs repeat."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Waits by letting the loop's time pass."""

    def __init__(self, passes: Callable[[float], None]) -> None:
        super().__init__()
        self._passes = passes

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for something that never happens"
            self._passes(max(0.0, timeout))
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. What runs here may use no threads, since nobody would wait for them."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Selector(self._pass))

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self._now

    def _pass(self, seconds: float) -> None:
        self._now += seconds


def run_virtual(main: Callable[[], Awaitable[T]]) -> T:
    """Run ``main`` by a clock of its own, from second 0."""
    return anyio.run(main, backend_options={"loop_factory": VirtualLoop})

"""Changes that a lease's rules refused, on their way into the delegation's log, which both sides read (DESIGN 4.6)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

MAX_NOTES: Final = 100
"""Lines that wait to be written; the data plane tells no more of one lease."""


class DenialNotes:
    """Takes lines where files are served, and hands them on where the log is written."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=MAX_NOTES)
        self._some = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, line: str) -> None:
        """Note one refused change with its reason, as text that is safe to show. From any thread."""
        self._lines.append(line)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._some.set)

    async def serve(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Hand on what comes until cancelled; what is left then, ``rest`` hands on."""
        self._loop = asyncio.get_running_loop()
        while True:
            await self.rest(tell)
            await self._some.wait()

    async def rest(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Hand on what waits."""
        self._some.clear()
        lines: list[str] = []
        while self._lines:
            lines.append(self._lines.popleft())
        if lines:
            await tell("".join(f"refused: {line}\n" for line in lines))

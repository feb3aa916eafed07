"""uvicorn as a part of the daemon: it leaves signals alone, and sleeps while nothing happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

DATE_SECONDS = 1.0
"""How often the ``Date`` of answers is set; uvicorn by itself wakes up ten times as often."""


class QuietServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, which are the daemon's, and without its ten ticks a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """Begin to shut down."""
        self.should_exit = True
        self._leaving.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def main_loop(self) -> None:
        """Sleep until told to leave; where answers have a ``Date``, wake up to set it."""
        pause = DATE_SECONDS if self.config.date_header else None
        # To uvicorn the 0 means a full second: headers are made anew then.
        while not await self.on_tick(0):
            try:
                async with asyncio.timeout(pause):
                    await self._leaving.wait()
            except TimeoutError:
                continue

"""Whether the executor's connections to the files are there, as the delegator's own server sees it (DESIGN 4.6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import anyio

CONNECTION_GRACE_SECONDS = 2.0
"""How long the executor may be without any connection before that is shown: ends of work and quick returns are not."""


class ConnectionWatch:
    """Tells of an executor that has lost its last connection, and of its return.

    Args:
        missing: whether it had one already, under an earlier process, which it has to make anew.
    """

    def __init__(self, missing: bool = False) -> None:
        self._here = asyncio.Event()
        self._gone = asyncio.Event()
        if missing:
            self._gone.set()

    def changed(self, connected: bool) -> None:
        """Note that the first connection is there, or the last one gone."""
        for event, true in ((self._here, connected), (self._gone, not connected)):
            if true:
                event.set()
            else:
                event.clear()

    async def serve(self, tell: Callable[[bool], Awaitable[None]]) -> None:
        """Call ``tell`` with False each time none was there for the grace, and with True afterwards; until cancelled.

        An executor that has not come yet has lost nothing.
        """
        while True:
            await self._gone.wait()
            with anyio.move_on_after(CONNECTION_GRACE_SECONDS):
                await self._here.wait()
                continue
            await tell(False)
            await self._here.wait()
            await tell(True)

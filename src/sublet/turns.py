"""A share of the event loop for each connection; imports nothing of ours.

A reader whose bytes have arrived already is never suspended by asyncio, so a connection that sends fast enough would
keep the loop to itself. Whoever handles what one connection sends takes a turn before each piece.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

TURN_SECONDS: Final = 0.005
"""How long one connection may go on before others are looked at."""
AT_ONCE: Final = 4
"""Connections of one listener that begin or end in one turn of the loop, where that takes half a millisecond."""


class Turns:
    """The turns of one connection."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def take(self) -> None:
        """Return when the next piece may be handled: at once, or after all others have had their turn."""
        if time.monotonic() - self._began >= TURN_SECONDS:
            await asyncio.sleep(0)
            self._began = time.monotonic()


class Turnstile:
    """Lets a few connections of one listener begin or end in each turn of the loop, in the order in which they came.

    Whoever opens hundreds of connections and closes them at one moment would have asyncio serve all of that in one
    turn, in which nobody else is looked at.

    Args:
        at_once: how many pass in a turn.
    """

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def passed(self) -> None:
        """Return in one of the next turns."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            loop.call_soon(self._open)
        await mine

    def _open(self) -> None:
        passing = 0
        while self._waiting and passing < self._at_once:
            if not (one := self._waiting.popleft()).done():  # cancelled meanwhile
                one.set_result(None)
                passing += 1
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._open)

"""A share of the event loop for each connection; imports nothing of ours.

A reader whose bytes have arrived already is never suspended by asyncio, so a connection that sends fast enough would
keep the loop to itself. Whoever handles what one connection sends takes a turn before each piece.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

TURN_SECONDS: Final = 0.005
"""How long one connection may go on before others are looked at."""


class Turns:
    """The turns of one connection."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def take(self) -> None:
        """Return when the next piece may be handled: at once, or after all others have had their turn."""
        if time.monotonic() - self._began >= TURN_SECONDS:
            await asyncio.sleep(0)
            self._began = time.monotonic()

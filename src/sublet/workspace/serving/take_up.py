"""Leases of an earlier process that are about to be served again: a login for one waits instead of being refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

import anyio

TAKE_UP_SECONDS: Final = 10.0
"""How long a login waits at most. Less than a login may take, and more than a start takes to get to the leases."""


class TakeUp:
    """Which leases may still come. At first none may: only a start that has some ``begin``s."""

    def __init__(self) -> None:
        self._listed = asyncio.Event()
        self._listed.set()
        self._awaited: dict[str, asyncio.Event] = {}

    def begin(self) -> None:
        """From now on every lease may come, until ``expect`` tells which."""
        self._listed.clear()

    def expect(self, lease_ids: Iterable[str]) -> None:
        """Only these may come; each is waited for until it is ``decide``d."""
        self._awaited = {lease_id: asyncio.Event() for lease_id in lease_ids}
        self._listed.set()

    def decide(self, lease_id: str) -> None:
        """The lease is served now, or never again. Idempotent."""
        if (decided := self._awaited.pop(lease_id, None)) is not None:
            decided.set()

    async def wait(self, lease_id: str) -> None:
        """Return once nothing more is to be expected of the lease, or ``TAKE_UP_SECONDS`` are over."""
        with anyio.move_on_after(TAKE_UP_SECONDS):
            await self._listed.wait()
            if (decided := self._awaited.get(lease_id)) is not None:
                await decided.wait()

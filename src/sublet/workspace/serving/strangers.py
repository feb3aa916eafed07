"""Connections that have not logged in yet, of which there are only so many (DESIGN 9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from sublet.protocol.sources import source_of

MAX_STRANGERS: Final = 256
"""Connections that have not logged in yet. Beyond it one makes room for the newest: the one that has come least far."""
MAX_STRANGERS_PER_SOURCE: Final = 64


class Strangers:
    """The tasks that serve strangers, each with the network that it came from and how far it has come.

    An honest login says its first word at once and takes milliseconds. So room is made by whoever is silent, then by
    whoever has got least far, and among these by the oldest: who opens many connections and goes no further with them
    keeps nobody out.
    """

    def __init__(self) -> None:
        self._sources: dict[asyncio.Task[None], str] = {}
        self._steps: dict[asyncio.Task[None], int] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def make_room(self, host: str) -> None:
        """Cut a connection of the network of ``host``, or of whoever has most of them, where one more is too many."""
        by_source = Counter(self._sources.values())
        source = source_of(host)
        if by_source[source] >= MAX_STRANGERS_PER_SOURCE:
            sources = {source}
        elif len(self._sources) >= MAX_STRANGERS:
            most = max(by_source.values())
            sources = {name for name, count in by_source.items() if count == most}
        else:
            return
        candidates = [task for task, its_source in self._sources.items() if its_source in sources]
        least = min(candidates, key=self._steps.__getitem__)  # the oldest of those that are equal
        self.forget(least)
        least.cancel()

    def add(self, serving: asyncio.Task[None], host: str) -> None:
        """Count ``serving`` from now on."""
        self._sources[serving] = source_of(host)
        self._steps[serving] = 0

    def advance(self, serving: asyncio.Task[None] | None) -> None:
        """Take note that ``serving`` has come one step further."""
        if serving in self._steps:
            self._steps[serving] += 1

    def forget(self, serving: asyncio.Task[None]) -> None:
        """Count it no more: it has logged in, or ended."""
        self._sources.pop(serving, None)
        self._steps.pop(serving, None)

"""Connections that have not logged in yet, of which there are only so many (DESIGN 9)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

MAX_STRANGERS: Final = 256
"""Connections that have not logged in yet. Beyond it the oldest makes room for the newest, since an honest login takes
milliseconds: whoever opens many and stays silent keeps nobody out."""
MAX_STRANGERS_PER_SOURCE: Final = 64


class Strangers:
    """The tasks that serve strangers, oldest first, each with the host that it came from."""

    def __init__(self) -> None:
        self._sources: dict[asyncio.Task[None], str] = {}

    def __len__(self) -> int:
        return len(self._sources)

    def make_room(self, source: str) -> None:
        """Cut the connection that has not logged in for longest, of ``source`` or of whoever has most of them."""
        by_source = Counter(self._sources.values())
        if by_source[source] < MAX_STRANGERS_PER_SOURCE:
            if len(self._sources) < MAX_STRANGERS:
                return
            source = by_source.most_common(1)[0][0]
        oldest = next(task for task, its_source in self._sources.items() if its_source == source)
        del self._sources[oldest]
        oldest.cancel()

    def add(self, serving: asyncio.Task[None], source: str) -> None:
        """Count ``serving`` from now on."""
        self._sources[serving] = source

    def forget(self, serving: asyncio.Task[None]) -> None:
        """Count it no more: it has logged in, or ended."""
        self._sources.pop(serving, None)

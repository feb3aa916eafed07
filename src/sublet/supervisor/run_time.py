"""How long one run of a provider may take: as long as its lease, and no longer than the agent's own limit."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sublet import deadlines
from sublet.supervisor.job import Deadline, Job


class RunTime:
    """The time of a run that begins now.

    Args:
        job: its deadline moves where its lease is extended meanwhile.
        own_seconds: what the agent's settings allow a run; 0 or None is no limit.
    """

    def __init__(self, job: Job, own_seconds: float | None) -> None:
        self._began = asyncio.get_running_loop().time()
        self._deadline = job.deadline or Deadline(self._began + job.remaining_seconds)
        self._own_seconds = own_seconds

    @property
    def ends(self) -> float:
        """When it ends, on the loop's clock, as it is now."""
        return self._bounded(self._deadline.at)

    @property
    def given_seconds(self) -> float:
        """How long it may take in all, as it is now."""
        return self.ends - self._began

    @property
    def taken_seconds(self) -> float:
        """How long it has taken until now."""
        return asyncio.get_running_loop().time() - self._began

    @asynccontextmanager
    async def limiting(self) -> AsyncIterator[None]:
        """End the block with ``TimeoutError`` when the run ends, wherever that is moved to meanwhile."""
        async with deadlines.timeout_at(self.ends) as limit:

            def move(at: float) -> None:
                # What has run out already stays so.
                with contextlib.suppress(RuntimeError):
                    limit.reschedule(self._bounded(at))

            with self._deadline.watched(move):
                yield

    def _bounded(self, at: float) -> float:
        return min(at, self._began + self._own_seconds) if self._own_seconds else at

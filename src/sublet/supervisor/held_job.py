"""One job held to its limits while it runs: what the cage and the guard do not see, and who has to see what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sublet import deadlines
from sublet.supervisor.agent_config import LimitsConfig
from sublet.supervisor.guarded_process import Ended
from sublet.supervisor.limits import Cage, Limit, bound

WATCH_SECONDS = 0.25
"""How often the cage is asked."""
_WATCHABLE: tuple[Limit, ...] = ("memory", "processes", "cpu_time")


class HeldJob:
    """Counts output and asks the cage; the first limit that is met ends the job.

    Args:
        limits: the agent's.
        cage: of this job.
    """

    def __init__(self, limits: LimitsConfig, cage: Cage) -> None:
        self.cage = cage
        self._limits = limits
        self._printed = 0
        self._over = asyncio.Event()
        self._met: str | None = None

    def watched(self) -> dict[str, int]:
        """Return the limits that the guard has to watch, since the cage does not hold them."""
        found = {limit: bound(self._limits, limit) for limit in _WATCHABLE if limit not in self.cage.held}
        return {limit: value for limit, value in found.items() if value is not None}

    def printed(self, count: int) -> None:
        """Take note of output."""
        self._printed += count
        if self._limits.output_bytes is not None and self._printed > self._limits.output_bytes:
            self._meet("output")

    async def watch(self, stop: Callable[[], None]) -> None:
        """Call ``stop`` when a limit is met; runs until cancelled."""
        while self._met is None:
            try:
                async with deadlines.timeout(WATCH_SECONDS):
                    await self._over.wait()
            except TimeoutError:
                if (met := await asyncio.to_thread(self.cage.exceeded)) is not None:
                    self._meet(met)
        stop()
        await asyncio.to_thread(self.cage.kill)

    def finally_met(self, ended: Ended | None) -> str | None:
        """Return the limit that was met, now that nothing runs any more. Blocks: call it in a thread.

        The kernel may have ended a process for its memory, and the command with it, before anybody asked.
        """
        if self._met is not None:
            return self._met
        if ended is not None and ended.how == "limit":
            return ended.reason
        return self.cage.exceeded()

    def _meet(self, limit: str) -> None:
        if self._met is None:
            self._met = limit
            self._over.set()

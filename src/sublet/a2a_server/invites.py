"""INVITEs that are being answered, so that a twin waits for the answer instead of making a second task."""

from __future__ import annotations

import asyncio

from sublet import deadlines

MAX_WAIT_SECONDS = 30.0


class PendingInvites:
    """One entry per INVITE on its way; the task store reports when its answer is on disk."""

    def __init__(self) -> None:
        self._pending: dict[str, asyncio.Event] = {}

    def begin(self, task_id: str) -> bool:
        """Tell whether nobody else is inviting for ``task_id``; the caller is now, if so."""
        if task_id in self._pending:
            return False
        self._pending[task_id] = asyncio.Event()
        return True

    def answered(self, task_id: str) -> None:
        """Wake whoever waits for ``task_id``."""
        pending = self._pending.pop(task_id, None)
        if pending is not None:
            pending.set()

    async def wait(self, task_id: str) -> bool:
        """Wait until ``task_id`` is answered; False where that takes too long, after which it counts as lost."""
        pending = self._pending.get(task_id)
        if pending is None:
            return True
        try:
            async with deadlines.timeout(MAX_WAIT_SECONDS):
                await pending.wait()
        except TimeoutError:
            self._pending.pop(task_id, None)
            return False
        return True

"""Tasks that a service starts for others, and that end with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
from anyio.abc import TaskGroup


class OwnTasks:
    """The tasks of one service; ``group`` is there while ``run`` runs, and takes no more once it is to stop."""

    def __init__(self) -> None:
        self.group: TaskGroup | None = None

    async def run(
        self,
        *,
        begin: Callable[[TaskGroup], Awaitable[None]] | None = None,
        stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Let tasks run until cancelled.

        Args:
            begin: what comes first, with the group at hand.
            stop: ends the tasks in order when this is cancelled, which it is shielded from; what is left then is
                cancelled.
        """
        async with anyio.create_task_group() as group:
            self.group = group
            try:
                if begin is not None:
                    await begin(group)
                await anyio.sleep_forever()
            finally:
                self.group = None
                if stop is not None:
                    with anyio.CancelScope(shield=True):
                        await stop()

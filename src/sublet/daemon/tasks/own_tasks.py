"""Tasks that a service starts for others, and that end with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVarTuple

import anyio
from anyio.abc import TaskGroup

from sublet.tasks import start_alone

Arguments = TypeVarTuple("Arguments")


class OwnTasks:
    """The tasks of one service. It takes them while ``run`` runs, and no more once it is to stop."""

    def __init__(self) -> None:
        self._group: TaskGroup | None = None

    @property
    def open(self) -> bool:
        """Whether tasks are taken now."""
        return self._group is not None

    def start(self, what: str, call: Callable[[*Arguments], Awaitable[Any]], *arguments: *Arguments) -> bool:
        """Start a task whose failure is its own alone; return whether it was taken.

        Args:
            what: names it in the log.
            call: does the work.
            arguments: of ``call``.
        """
        if self._group is None:
            return False
        start_alone(self._group, what, call, *arguments)
        return True

    async def run(
        self,
        *,
        begin: Callable[[], Awaitable[None]] | None = None,
        stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Let tasks run until cancelled.

        Args:
            begin: what comes first, when tasks are taken already.
            stop: ends the tasks in order when this is cancelled, which it is shielded from; what is left then is
                cancelled.
        """
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                if begin is not None:
                    await begin()
                await anyio.sleep_forever()
            finally:
                self._group = None
                if stop is not None:
                    with anyio.CancelScope(shield=True):
                        await stop()

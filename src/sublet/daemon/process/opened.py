"""What a daemon has opened, and closes again in the opposite order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from types import TracebackType

import anyio


class Opened:
    """Closes when its ``async with`` ends, however far the start has come: the last that was opened first.

    Each is closed whatever became of those before it, and though the task may be cancelled.
    """

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Opened:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._stack.__aexit__(kind, error, traceback)

    def close_by(self, close: Callable[[], object]) -> None:
        """Have ``close`` called, which does not wait."""
        self._stack.callback(close)

    def wait_for(self, close: Callable[[], Awaitable[object]]) -> None:
        """Have ``close`` called and waited for."""

        async def closed() -> None:
            await close()

        self._stack.push_async_callback(closed)

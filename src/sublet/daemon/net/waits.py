"""Waits that end when the daemon stops: for every face that answers over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from sublet.protocol.errors import LocalCode, SubletError

T = TypeVar("T")


class Waits:
    """Ends long polls and feeds at the daemon's stop, so that it needs no patience."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End everything that waits; later requests that would wait are refused."""
        self._stopping.set()

    async def unless_stopping(self, waiting: Callable[[], Awaitable[T]]) -> T:
        """Return what ``waiting()`` returns, or give up at once when the daemon stops.

        Raises:
            SubletError: ``UNAVAILABLE`` then, or what ``waiting()`` raises.
        """
        answers: list[T] = []
        refusals: list[SubletError] = []

        async def wait(scope: anyio.CancelScope) -> None:
            try:
                answers.append(await waiting())
            except SubletError as error:
                # Carried by hand, since a task group would wrap it.
                refusals.append(error)
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(wait, group.cancel_scope)
            await self._stopping.wait()
            group.cancel_scope.cancel()
        if refusals:
            raise refusals[0]
        if not answers:
            raise SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping", "Start it again with `sublet up`.")
        return answers[0]

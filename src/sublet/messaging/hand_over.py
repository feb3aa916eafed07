"""From the engine's thread and the network's to the event loop: what begins there goes on here, in order."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import anyio.abc
import structlog

from sublet.messaging.owner import Settled, settle
from sublet.protocol.errors import SubletError
from sublet.tasks import start_alone

MAX_TODO: Final = 4_096

log = structlog.get_logger(__name__)


class HandOver:
    """Takes work from any thread.

    Args:
        overflowed: done once in place of what found no room.
    """

    def __init__(self, overflowed: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._overflowed = overflowed
        self._loop: asyncio.AbstractEventLoop | None = None
        self._todo: asyncio.Queue[tuple[Callable[..., Any], tuple[Any, ...]]] = asyncio.Queue(MAX_TODO)
        self._missed = False

    def begin(self) -> None:
        """Take work for the event loop that runs now."""
        self._loop = asyncio.get_running_loop()

    def settle(self, settled: list[Settled]) -> None:
        """Keep promises on the event loop; once that has ended nobody waits any more."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(settle, settled)

    def soon(self, run: Callable[..., Any], *arguments: Any) -> None:
        """Run something on the event loop, from any thread; once the loop has ended nothing needs it any more."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, run, arguments)

    def at_once(self, run: Callable[[], object]) -> None:
        """Run something that does not wait on the event loop, before everything that was handed over."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(run)

    def _put(self, run: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            self._todo.put_nowait((run, arguments))
        except asyncio.QueueFull:
            self._missed = True

    async def dispatch(self, group: anyio.abc.TaskGroup) -> None:
        """Do what was handed over, in order, until cancelled; what waits for something gets a task of its own.

        What fails, as when the disk is full, ends nothing else: it is asked for again from time to time.
        """
        while True:
            run, arguments = await self._todo.get()
            if inspect.iscoroutinefunction(run):
                start_alone(group, "what the network brought", tried, run, *arguments)
            else:
                await tried(run, *arguments)
            if self._missed:
                self._missed = False
                start_alone(group, "catching up", tried, self._overflowed)


async def tried(run: Callable[..., Any], *arguments: Any) -> None:
    """Do something of which nobody waits for the end; if it fails, that is written to the log and nothing else."""
    try:
        done = run(*arguments)
        if inspect.isawaitable(done):
            await done
    except SubletError as error:
        log.warning("something that came from the network was not done", reason=str(error))
    except Exception:
        log.exception("something that came from the network failed")

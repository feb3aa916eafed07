"""From the engine's thread and the network's to the event loop: what begins there goes on here, in order."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final

import anyio.abc
import structlog

from sublet.messaging.running.owner import Settled, settle
from sublet.protocol.errors import SubletError
from sublet.tasks import start_alone

MAX_TODO: Final = 4_096
"""Things that wait for the event loop. What finds no room is made up for by catching up."""
MAX_TODO_BYTES: Final = 4 << 20
"""Of their arguments: names of documents, rooms and entities."""
_ARGUMENT_BYTES: Final = 64

log = structlog.get_logger(__name__)


class HandOver:
    """Takes work from any thread. What waits is bounded where it comes in, even while the event loop stands still."""

    def __init__(self) -> None:
        self._overflowed: Callable[[], Coroutine[object, None, None]] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        self._todo: deque[tuple[Callable[..., object], tuple[object, ...], int]] = deque()
        self._size = 0
        self._ready = asyncio.Event()
        self._missed = False

    def begin(self, overflowed: Callable[[], Coroutine[object, None, None]]) -> None:
        """Take work for the event loop that runs now.

        Args:
            overflowed: done once in place of what found no room.
        """
        self._overflowed = overflowed
        self._loop = asyncio.get_running_loop()

    def settle(self, settled: list[Settled]) -> None:
        """Keep promises on the event loop; once that has ended nobody waits any more."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(settle, settled)

    def soon(self, run: Callable[..., object], *arguments: object) -> None:
        """Run something on the event loop, from any thread; once the loop has ended nothing needs it any more."""
        if self._loop is None or self._loop.is_closed():
            return
        size = sum(map(_size, arguments))
        with self._lock:
            wakes = not self._todo
            if len(self._todo) >= MAX_TODO or self._size + size > MAX_TODO_BYTES:
                self._missed = True
            else:
                self._todo.append((run, arguments, size))
                self._size += size
        if wakes:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._ready.set)

    def at_once(self, run: Callable[[], object]) -> None:
        """Run something that does not wait on the event loop, before everything that was handed over."""
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(run)

    async def dispatch(self, group: anyio.abc.TaskGroup) -> None:
        """Do what was handed over, in order, until cancelled; what waits for something gets a task of its own.

        What fails, as when the disk is full, ends nothing else: it is asked for again from time to time.
        """
        while True:
            with self._lock:
                item = self._todo.popleft() if self._todo else None
                if item is not None:
                    self._size -= item[2]
                else:
                    self._ready.clear()
                missed, self._missed = self._missed, False
            if item is not None:
                run, arguments, _ = item
                if inspect.iscoroutinefunction(run):
                    start_alone(group, "what the network brought", tried, run, *arguments)
                else:
                    await tried(run, *arguments)
            if missed and self._overflowed is not None:
                start_alone(group, "catching up", tried, self._overflowed)
            if item is None:
                await self._ready.wait()


def _size(argument: object) -> int:
    """Return about how many bytes an argument takes, of those whose size a peer decides."""
    if isinstance(argument, str | bytes):
        return _ARGUMENT_BYTES + len(argument)
    if isinstance(argument, frozenset | list | tuple):
        return _ARGUMENT_BYTES + sum(map(_size, argument))
    return _ARGUMENT_BYTES


async def tried(run: Callable[..., object], *arguments: object) -> None:
    """Do something of which nobody waits for the end; if it fails, that is written to the log and nothing else."""
    try:
        done = run(*arguments)
        if inspect.isawaitable(done):
            await done
    except SubletError as error:
        log.warning("something that came from the network was not done", reason=str(error))
    except Exception:
        log.exception("something that came from the network failed")

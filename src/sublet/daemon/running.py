"""How the daemon runs its parts: beside each other, in order, until a signal asks for the end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
from anyio.abc import TaskGroup

from sublet.daemon.ports import Face


@contextmanager
def signals(stop: asyncio.Event) -> Iterator[None]:
    """Have SIGTERM, SIGINT and the end of the terminal set ``stop``, which asks for a clean end."""
    loop = asyncio.get_running_loop()
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup's wish
        numbers.append(signal.SIGHUP)
    for number in numbers:
        loop.add_signal_handler(number, stop.set)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


@asynccontextmanager
async def running(*services: Callable[[], Coroutine[None, None, None]]) -> AsyncIterator[TaskGroup]:
    """Run ``services`` beside the body; when it ends they are cancelled, each cleans up within its own bounds."""
    async with anyio.create_task_group() as group:
        for service in services:
            group.start_soon(service)
        try:
            yield group
        finally:
            group.cancel_scope.cancel()


@asynccontextmanager
async def started(*faces: Face) -> AsyncIterator[None]:
    """Start ``faces`` and serve them beside the body; where one can't start, those before it are ended."""
    async with running() as group:
        for face in faces:
            await face.start()
            group.start_soon(face.serve)
        yield

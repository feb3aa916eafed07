"""Holds a part that needs an event loop, for probes of what is kept."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path


@contextmanager
def within(part: Callable[[Path], AbstractAsyncContextManager[object]]) -> Iterator[object]:
    """Enter ``part`` with a directory of its own on a loop of its own, and yield what it yields."""
    held: list[object] = []
    begun, leave = asyncio.Event(), asyncio.Event()

    async def hold() -> None:  # a cancel scope is left by the task that has entered it
        try:
            async with part(Path(base)) as there:
                held.append(there)
                begun.set()
                await leave.wait()
        finally:
            begun.set()

    with tempfile.TemporaryDirectory(prefix="kept") as base, asyncio.Runner() as runner:
        holding = runner.get_loop().create_task(hold())
        runner.run(begun.wait())
        try:
            if held:
                yield held.pop()
        finally:
            leave.set()
            runner.run(_ended(holding))


async def _ended(task: asyncio.Task[None]) -> None:
    await task

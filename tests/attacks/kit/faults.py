"""Throws a failure into any task of the daemon that is named by the place that starts it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import anyio
from anyio.abc import TaskGroup

from sublet.tasks import alone

MECHANISM = ("sublet.tasks:", "sublet.daemon.tasks.own_tasks:", "anyio.")
PREFIX = "sublet."
REASON = "thrown on purpose"


class Faults:
    """Knows every place that starts a task, and fails the next task of some of them.

    A task that is an operation's own part fails in its first step. One that ``sublet.tasks`` holds apart does its work
    and fails then, as its failure must reach nobody, whatever it has done.
    """

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.thrown: set[str] = set()
        self._targets: set[str] = set()

    @contextmanager
    def installed(self) -> Iterator[Faults]:
        """Look at every task that is started while the block runs."""
        from anyio._backends._asyncio import TaskGroup as AnyioGroup

        start_soon, create_task = AnyioGroup.start_soon, asyncio.TaskGroup.create_task
        faults = self

        def soon(group: TaskGroup, call: Callable[..., Awaitable[Any]], *arguments: Any, **more: Any) -> Any:
            if faults._hits(sys._getframe(1)):
                if call is alone:
                    what, work, *rest = arguments
                    call, arguments = alone, (what, _then_failing(work), *rest)
                else:
                    call, arguments = _failing, ()
            return start_soon(group, call, *arguments, **more)  # type: ignore[arg-type]

        def create(group: asyncio.TaskGroup, work: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:
            if faults._hits(sys._getframe(1)):
                if getattr(work, "__qualname__", "") == alone.__qualname__:
                    held = work
                    work = alone("a task that fails", _then_failing(lambda: held))
                else:
                    work.close()
                    work = _failing()
            return create_task(group, work, **more)

        for group, name, ours in ((AnyioGroup, "start_soon", soon), (asyncio.TaskGroup, "create_task", create)):
            setattr(group, name, ours)
        try:
            yield self
        finally:
            setattr(AnyioGroup, "start_soon", start_soon)  # noqa: B010 - it is final for everybody else
            setattr(asyncio.TaskGroup, "create_task", create_task)  # noqa: B010

    @contextmanager
    def throwing(self, *places: str) -> Iterator[None]:
        """Fail the next task that each of ``places`` starts while the block runs."""
        self._targets = {*places}
        try:
            yield
        finally:
            self._targets = set()

    def _hits(self, frame: FrameType | None) -> bool:
        place = place_of(frame)
        if place is None:
            return False
        self.seen.add(place)
        if place not in self._targets:
            return False
        self._targets.discard(place)
        self.thrown.add(place)
        return True


def place_of(frame: FrameType | None) -> str | None:
    """Return ``package.module:qualified.function`` of the innermost frame of ours that is no mechanism's."""
    while frame is not None:
        where = f"{frame.f_globals.get('__name__', '')}:{frame.f_code.co_qualname}"
        if not where.startswith(MECHANISM):
            break
        frame = frame.f_back
    if frame is None or not where.startswith(PREFIX):
        return None
    # A function within a function counts as the outer one.
    return where.removeprefix(PREFIX).partition(".<locals>")[0]


async def _failing() -> None:
    await anyio.lowlevel.checkpoint()
    raise RuntimeError(REASON)


def _then_failing(work: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[None]]:
    async def run(*arguments: Any) -> None:
        await work(*arguments)
        raise RuntimeError(REASON)

    return run

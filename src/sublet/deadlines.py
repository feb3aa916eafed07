"""Time limits for a block of code, which hold in a task that is being cancelled as well.

``asyncio.timeout`` of Python 3.11.2, which Debian 12 has, takes its own cancellation for that of the task where the
task was cancelled before. The block then ends with ``CancelledError`` instead of ``TimeoutError``, and what ought to be
done after it is left out: a mount stays. So nothing here uses it, nor ``asyncio.wait_for``; a test makes sure of that.
"""

from __future__ import annotations

import asyncio
from types import TracebackType


def timeout(seconds: float | None) -> Deadline:
    """Return a context that ends its block with ``TimeoutError`` after ``seconds``; None is no limit."""
    return Deadline(None if seconds is None else asyncio.get_running_loop().time() + seconds)


def timeout_at(when: float | None) -> Deadline:
    """Return a context that ends its block with ``TimeoutError`` at ``when``, on the loop's clock; None is never."""
    return Deadline(when)


class Deadline:
    """An asynchronous context with a limit in time, to be entered once. Made by ``timeout`` and ``timeout_at``."""

    def __init__(self, when: float | None) -> None:
        self._when = when
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.Handle | None = None
        self._cancels_before = 0
        self._expired = False
        self._left = False

    def expired(self) -> bool:
        """Tell whether the limit has ended the block."""
        return self._expired

    def reschedule(self, when: float | None) -> None:
        """Move the limit to ``when``.

        Raises:
            RuntimeError: the block is not running, or is being ended.
        """
        if self._task is None or self._expired or self._left:
            raise RuntimeError("only the limit of a running block can be moved")
        self._when = when
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        if when is not None:
            self._timer = loop.call_soon(self._expire) if when <= loop.time() else loop.call_at(when, self._expire)

    async def __aenter__(self) -> Deadline:
        """Begin to count for the current task, whose block ends with ``TimeoutError`` once the time is up."""
        task = asyncio.current_task()
        if task is None or self._task is not None:
            raise RuntimeError("a limit is entered once, and in a task")
        self._task = task
        self._cancels_before = task.cancelling()
        self.reschedule(self._when)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """End; the cancellation of ours becomes a ``TimeoutError``, and any other stays one."""
        assert self._task is not None
        self._left = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (
            self._expired
            and self._task.uncancel() <= self._cancels_before
            and kind is not None
            and issubclass(kind, asyncio.CancelledError)
        ):
            raise TimeoutError from exc

    def _expire(self) -> None:
        assert self._task is not None
        self._expired = True
        self._timer = None
        self._task.cancel()

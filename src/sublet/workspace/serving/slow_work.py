"""Where the data plane does what takes long in the kernel, such as fsync: in threads of its own.

One peer's work is done one after another, and the daemon's other work has other threads. So a peer whose disk work
takes minutes takes one of ``MAX_SLOW_THREADS`` from all others, and nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any, Final, ParamSpec, TypeVar

MAX_SLOW_THREADS: Final = 8
"""Peers whose work is done at the same time."""

P = ParamSpec("P")
T = TypeVar("T")


class SlowWork:
    """The threads, shared by all peers."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Take work, after a shutdown again."""
        self._threads = ThreadPoolExecutor(MAX_SLOW_THREADS, "slow")

    def one_by_one(self) -> Executor:
        """Return where one peer's work is done."""
        return _OneByOne(self.start)

    def start(self, work: Callable[[], None]) -> None:
        """Do ``work`` in a thread.

        Raises:
            RuntimeError: after ``shutdown``.
        """
        self._threads.submit(work)

    def shutdown(self) -> None:
        """Take nothing more; what has begun comes to its end."""
        self._threads.shutdown(wait=False)


class _OneByOne(Executor):
    """Does one thing after another in threads that others use too."""

    def __init__(self, start: Callable[[Callable[[], None]], None]) -> None:
        self._start = start
        self._lock = Lock()
        self._todo: deque[Callable[[], None]] = deque()
        self._busy = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Do ``fn`` when all that came before is done."""
        future: Future[T] = Future()
        with self._lock:
            self._todo.append(partial(_run, future, partial(fn, *args, **kwargs)))
            if self._busy:
                return future
            self._busy = True
        try:
            self._start(self._next)
        except RuntimeError:  # the threads take nothing
            with self._lock:
                self._todo.clear()
                self._busy = False
            raise
        return future

    def _next(self) -> None:
        while True:
            with self._lock:
                work = self._todo.popleft()
            work()
            with self._lock:
                self._busy = bool(self._todo)
                if not self._busy:
                    return
            with suppress(RuntimeError):  # the threads take nothing more: what has begun comes to its end here
                self._start(self._next)
                return


def _run(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        call()  # it may hold a descriptor that it closes, so it is run whether anybody waits or not
        return
    try:
        result = call()
    except BaseException as exc:
        future.set_exception(exc)
    else:
        future.set_result(result)

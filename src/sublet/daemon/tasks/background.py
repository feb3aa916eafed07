"""Blocking work that may take long, or for ever, and must not keep the daemon from stopping."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, TypeVarTuple

from sublet.tasks import described

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")


async def in_background(call: Callable[[*Arguments], T], *arguments: *Arguments) -> T:
    """Return what ``call`` returns, run in a thread of its own.

    A caller who is cancelled leaves the thread to itself. Other than those of ``asyncio.to_thread``, it is not waited
    for when the loop is closed or the process ends, so ``call`` has to bear being cut off, as by ``kill -9``.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def tell(result: T) -> None:
        if not outcome.done():
            outcome.set_result(result)

    def tell_failure(error: Exception) -> None:
        if not outcome.done():
            outcome.set_exception(error)

    def work() -> None:
        # The loop may be closed by the time there is something to tell.
        try:
            result = call(*arguments)
        except BaseException as error:
            # Of a thread nobody wants that it ends; what is no Exception is a panic of a library in Rust.
            failure = error if isinstance(error, Exception) else RuntimeError(described(error))
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell_failure, failure)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(tell, result)

    threading.Thread(target=work, name=f"background {getattr(call, '__name__', '')}", daemon=True).start()
    return await outcome

"""The answer to one INVITE, and who waits for it (AWCP 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept


class Promise:
    """The answer to one INVITE, and what it holds, which is given up with the caller who waits for it."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[Accept] = asyncio.get_running_loop().create_future()
        self._leave: Callable[[], Awaitable[object]] | None = None
        self._over = asyncio.Event()

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._answer.cancelled()

    async def keep(self, accept: Accept, leave: Callable[[], Awaitable[object]] | None) -> None:
        """Answer; ``leave`` gives up what this INVITE holds, None where that belongs to an earlier one."""
        self._leave = leave
        if not self._answer.done():
            self._answer.set_result(accept)
        elif leave is not None:
            await leave()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Answer with the error that ends the body, if any."""
        try:
            yield
        except BaseException as error:
            told = error if isinstance(error, Exception) else SubletError(ErrorCode.DECLINED, "this daemon is stopping")
            if not self._answer.done():
                self._answer.set_exception(told)
            if told is not error:
                raise
        else:
            if not self._answer.done():
                self._answer.cancel()
        finally:
            self._over.set()

    async def wait(self) -> Accept:
        """Return the answer, or raise the refusal. Who is cancelled here, also with the answer in hand, gives it up."""
        try:
            accept = await self._answer
            # A scope that was cancelled meanwhile says so at the next await only, which may be too late to give up.
            await anyio.lowlevel.checkpoint_if_cancelled()
            return accept
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):
                await self._over.wait()
                if self._leave is not None:
                    await self._leave()
            raise


def left() -> SubletError:
    """Return why what an INVITE holds is given up with its caller."""
    return SubletError(ErrorCode.CANCELLED, "the delegator gave up before it was answered")

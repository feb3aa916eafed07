"""What an accepted INVITE holds in memory until its START comes, or does not (AWCP 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import anyio.lowlevel
import asyncssh

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Accept
from sublet.supervisor.slots import RESERVED_SECONDS

START_GRACE_SECONDS = 5.0


def start_seconds(ttl_seconds: int) -> float:
    """Return for how many seconds an INVITE of that lease waits for its START before its slot is given to others.

    A slot is not kept for much longer than the work itself could hold it.
    """
    return min(RESERVED_SECONDS, ttl_seconds + START_GRACE_SECONDS)


class Pending:
    """What an accepted INVITE holds in memory until its START: the key never touches the disk.

    Args:
        key: of the lease.
        seconds: how long it is kept.

    ``decided`` is set when START has taken it, or when it is given up for ``error``; ``gone`` once nothing is left.
    """

    def __init__(self, key: asyncssh.SSHKey, seconds: float) -> None:
        self.key = key
        self._seconds = seconds
        self.decided = asyncio.Event()
        self.gone = asyncio.Event()
        self.error = SubletError(ErrorCode.DECLINED, f"no START came within {seconds:.0f} s", "Invite again.")

    async def wait(self) -> None:
        """Wait for the decision, for as long as the slot is kept."""
        with anyio.move_on_after(self._seconds):
            await self.decided.wait()

    def give_up(self, error: SubletError) -> None:
        """Let it go for ``error``."""
        if not self.decided.is_set():
            self.error = error
            self.decided.set()

    def yield_slot(self) -> None:
        """Let it go, as its slot went to a peer that holds fewer."""
        self.give_up(
            SubletError(
                ErrorCode.DECLINED,
                "you were promised more slots of this executor than another peer, who needed one before your START",
                "Invite again, and for fewer delegations at once.",
            )
        )


class Promise:
    """The answer to one INVITE, and what it holds, which is given up with the caller who waits for it."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[Accept] = asyncio.get_running_loop().create_future()
        self._pending: Pending | None = None
        self._over = asyncio.Event()

    @property
    def given_up(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._answer.cancelled()

    def keep(self, accept: Accept, pending: Pending | None) -> None:
        """Answer; ``pending`` is what this INVITE holds, None where it belongs to an earlier one."""
        self._pending = pending
        if self._answer.done():
            self._give_up()
        else:
            self._answer.set_result(accept)

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
                if self._pending is not None:
                    self._give_up()
                    await self._pending.gone.wait()
            raise

    def _give_up(self) -> None:
        if self._pending is not None:
            self._pending.give_up(SubletError(ErrorCode.CANCELLED, "the delegator gave up before it was answered"))

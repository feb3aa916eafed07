"""What an accepted INVITE holds in memory until its START comes, or does not (AWCP 4.2)."""

from __future__ import annotations

import asyncio

import anyio
import asyncssh

from sublet.protocol.errors import ErrorCode, SubletError
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

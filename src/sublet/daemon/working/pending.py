"""What an accepted INVITE holds in memory until its START comes, or does not (AWCP 4.2)."""

from __future__ import annotations

import asyncio

import anyio
import asyncssh

from sublet.protocol.errors import ErrorCode, SubletError
from sublet.supervisor.slots import RESERVED_SECONDS

PENDING_SECONDS = RESERVED_SECONDS
"""How long an accepted INVITE waits for its START before its slot is given to others."""


class Pending:
    """What an accepted INVITE holds in memory until its START: the key never touches the disk.

    ``decided`` is set when START has taken it, or when it is given up for ``error``; ``gone`` once nothing is left.
    """

    def __init__(self, key: asyncssh.SSHKey) -> None:
        self.key = key
        self.decided = asyncio.Event()
        self.gone = asyncio.Event()
        self.error = SubletError(ErrorCode.DECLINED, f"no START came within {PENDING_SECONDS:.0f} s", "Invite again.")

    async def wait(self) -> None:
        """Wait for the decision, for as long as the slot is kept."""
        with anyio.move_on_after(PENDING_SECONDS):
            await self.decided.wait()

    def give_up(self, error: SubletError) -> None:
        """Let it go for ``error``."""
        if not self.decided.is_set():
            self.error = error
            self.decided.set()

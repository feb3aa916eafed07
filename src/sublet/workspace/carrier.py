"""How a delegator's view comes to an executor: the small interface that every transport has behind it (DESIGN 4.6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Protocol

import asyncssh


class Carried(Protocol):
    """One view where the work is done, made by ``Carrier.attach`` and ended by ``detach``.

    ``path`` holds the view. It outlives the connection over which it came: ``cut`` is set while there is none, and
    ``rejoin`` gives it another. ``lost`` is set once work in it can come to nothing for good.
    """

    path: Path
    cut: asyncio.Event
    lost: asyncio.Event

    @property
    def is_copy(self) -> bool:
        """Whether the work goes on in it without a connection."""

    @property
    def is_there(self) -> bool:
        """Whether ``path`` holds the view now, and not what lies below it."""

    @property
    def left(self) -> str:
        """What is still here of it after ``detach``, in words; empty where nothing is."""

    @property
    def why_cut(self) -> str:
        """Why there was no connection the last time that there was none."""

    @property
    def why_lost(self) -> str:
        """Why it is lost, to follow 'because'; empty while it is not."""

    @property
    def interrupted(self) -> int:
        """How many operations failed for want of a connection."""

    @property
    def over_quota(self) -> bool:
        """Whether the delegator has refused a change for the quota of the lease; it says so over its own way, too."""

    async def attend(self) -> None:
        """Do what the view needs done while it is worked in; runs until it is cancelled, or the view is lost."""

    async def rejoin(self, connection: asyncssh.SSHClientConnection) -> None:
        """Go on over ``connection``, which is logged in to the delegator; ``cut`` is clear again afterwards.

        Raises:
            SubletError: ``MOUNT_FAILED`` where the delegator gives no such channel.
        """

    async def bring_back(self) -> bool:
        """Bring what was changed to the delegator, where that is done at the end; what can't be brought is left out.

        Returns:
            Whether it is of no use to call this again: False where only the link broke, and may come back.
        """

    async def detach(self, *, flush: bool = True) -> bool:
        """Bring what was not brought back yet to the delegator, unless ``flush`` is false; leave nothing here.

        Bounded in time whatever the link does. Calling it again returns the first answer, or goes on where a cancelled
        call stopped. End the processes that work in it first.

        Returns:
            Whether everything that was written is known to have reached the delegator.
        """


class Carrier(Protocol):
    """One transport, on the executor's side."""

    def reserve(self, delegation_id: str) -> Path:
        """Make the empty place for a delegation's view and return its path, for ACCEPT to name (AWCP 4.2).

        Raises:
            SubletError: ``MOUNTPOINT_DENIED`` where the id can't name a directory, or something is there already.
        """

    def release(self, place: Path) -> bool:
        """Remove a reserved place and return whether nothing is left in use of it."""

    async def attach(self, place: Path, connection: asyncssh.SSHClientConnection, remote_path: str) -> Carried:
        """Bring the delegator's view and return once it is there.

        Args:
            place: as ``reserve`` returned it.
            connection: logged in to the delegator; the caller closes it, after ``detach``.
            remote_path: the directory of the view, in plain characters.

        Raises:
            SubletError: ``DEP_MISSING``, ``MOUNTPOINT_DENIED`` or ``MOUNT_FAILED``, and nothing is left here.
        """

    def reap(self) -> list[str]:
        """Remove what a crash left, before the first ``reserve`` and in a thread; return the names of what it was."""

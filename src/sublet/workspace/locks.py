"""Scope-aware directory locks: an rw lease excludes whatever overlaps its path, ro leases share (AWCP 6.5, DESIGN 4.5).

``LockTable`` is the pure core: who holds, who waits, who is next. ``DirectoryLocks`` lets coroutines wait on it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sublet import deadlines
from sublet.protocol.errors import LocalCode, SubletError
from sublet.workspace.export import AccessMode

MAX_WAITING: Final = 1_000
"""Requests that may queue at once; one more is refused."""


Wants = Sequence[tuple[Path, AccessMode]]
"""Real paths of directories, and how each is to be used. Links are resolved before paths are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class LockRequest:
    """One lease's wish to use directories, all of them or none, so that no two leases wait for each other."""

    owner: str
    wants: Wants

    def conflicts(self, other: LockRequest) -> bool:
        """Tell whether the two may not hold at once: a path of each overlap and one of them writes there."""
        return any(
            "rw" in (mode, other_mode) and (path.is_relative_to(other_path) or other_path.is_relative_to(path))
            for path, mode in self.wants
            for other_path, other_mode in other.wants
        )


class LockTable:
    """Held and waiting requests, in order of arrival.

    A request is granted when it conflicts neither with a holder nor with anyone who came before it. So nobody starves,
    and nobody waits for a queue that does not concern it.
    """

    def __init__(self) -> None:
        self._held: list[LockRequest] = []
        self._waiting: list[LockRequest] = []

    @property
    def held(self) -> tuple[LockRequest, ...]:
        """Requests that hold, oldest grant first."""
        return tuple(self._held)

    @property
    def waiting(self) -> tuple[LockRequest, ...]:
        """Requests that wait, oldest first."""
        return tuple(self._waiting)

    def request(self, request: LockRequest) -> bool:
        """Grant ``request`` and return True, or queue it and return False.

        Raises:
            SubletError: ``UNAVAILABLE`` where ``MAX_WAITING`` requests queue already.
        """
        if not self._blockers(request, self._waiting):
            self._held.append(request)
            return True
        if len(self._waiting) >= MAX_WAITING:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"{MAX_WAITING} delegations already wait for a directory",
                "Wait for some of them to end, or cancel them.",
            )
        self._waiting.append(request)
        return False

    def release(self, request: LockRequest) -> list[LockRequest]:
        """Take ``request`` out, whether it holds or waits, and return those that are granted by it, in order."""
        for requests in (self._held, self._waiting):
            if request in requests:
                requests.remove(request)
        granted: list[LockRequest] = []
        still: list[LockRequest] = []
        for candidate in self._waiting:
            if self._blockers(candidate, still):
                still.append(candidate)
            else:
                self._held.append(candidate)
                granted.append(candidate)
        self._waiting = still
        return granted

    def position(self, request: LockRequest) -> int:
        """Return how many requests must end before ``request`` is granted: holders and earlier ones in its way.

        0 means granted. Only requests that conflict count, so the number never rises.
        """
        if request not in self._waiting:
            return 0
        return len(self._blockers(request, self._waiting[: self._waiting.index(request)]))

    def in_the_way(self, owner: str) -> list[str]:
        """Return the owners of what holds against the waiting request of ``owner``, oldest grant first."""
        wanted = [request for request in self._waiting if request.owner == owner]
        return [held.owner for held in self._held if any(request.conflicts(held) for request in wanted)]

    def _blockers(self, request: LockRequest, earlier: list[LockRequest]) -> list[LockRequest]:
        return [other for other in (*self._held, *earlier) if request.conflicts(other)]


class DirectoryLocks:
    """Directory locks that coroutines of one event loop wait for."""

    def __init__(self) -> None:
        self._table = LockTable()
        self._waiters: dict[LockRequest, tuple[asyncio.Future[None], Callable[[int], None], int]] = {}

    @contextlib.asynccontextmanager
    async def acquire(
        self,
        wants: Wants,
        *,
        owner: str,
        timeout: float,
        on_position: Callable[[int], None] = lambda _position: None,
    ) -> AsyncIterator[None]:
        """Hold directories for the body of an ``async with``, all of them from the same moment.

        Args:
            wants: the directories; ``rw`` excludes whatever overlaps, ``ro`` shares with other ``ro``.
            owner: whom to name to those who wait, such as a delegation id.
            timeout: seconds to wait at most; 0 does not wait.
            on_position: called with the place in the queue (1 is next) when it is taken and whenever it changes, and
                with 0 when a wait has ended in a grant. It runs on the loop and must not raise or block.

        Raises:
            SubletError: ``CONFLICT`` when the time is over, ``UNAVAILABLE`` when the queue is full.
        """
        request = LockRequest(owner, wants)
        try:
            if not self._table.request(request):
                await self._wait(request, timeout, on_position)
            yield
        finally:
            self._release(request)

    def in_the_way(self, owner: str) -> list[str]:
        """Return whose leases the waiting request of ``owner`` waits for."""
        return self._table.in_the_way(owner)

    def holders(self) -> tuple[LockRequest, ...]:
        """Return who holds now."""
        return self._table.held

    async def _wait(self, request: LockRequest, timeout: float, on_position: Callable[[int], None]) -> None:
        granted = asyncio.get_running_loop().create_future()
        position = self._table.position(request)
        self._waiters[request] = (granted, on_position, position)
        try:
            on_position(position)
            async with deadlines.timeout(timeout):
                await granted
        except TimeoutError:
            raise self._conflict(request, timeout) from None
        finally:
            # A grant may have come in the same loop turn as the timeout or a cancellation; the caller passes it on.
            self._waiters.pop(request, None)
        on_position(0)

    def _conflict(self, request: LockRequest, timeout: float) -> SubletError:
        owners = ", ".join(o.owner for o in self._table.held if request.conflicts(o))
        return SubletError(
            LocalCode.CONFLICT,
            f"{' or '.join(str(path) for path, _ in request.wants)} is in use by another delegation"
            + (f" ({owners})" if owners else "")
            + f", and waiting {timeout:g} s did not help",
            "Wait for it to end, cancel it, or lend a directory that does not overlap it.",
        )

    def _release(self, request: LockRequest) -> None:
        for granted in self._table.release(request):
            future = self._waiters[granted][0]
            if not future.done():
                future.set_result(None)
        for waiting in self._table.waiting:
            future, on_position, last = self._waiters[waiting]
            position = self._table.position(waiting)
            if position != last:
                self._waiters[waiting] = (future, on_position, position)
                on_position(position)

"""How many tasks run at once: a slot is reserved when an INVITE is accepted and used when START comes.

Promises cost a peer nothing, so where all slots are taken the peer that holds most of them gives one to a peer that
holds fewer. What runs is never ended for it.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sublet.protocol.errors import ErrorCode, SubletError

RESERVED_SECONDS = 60.0
RETRY_SECONDS = 30


@dataclass(frozen=True, slots=True)
class _Promise:
    """A slot that waits for its START: whose it is, and until when, in seconds of the clock."""

    holder: str
    until: float


class Slots:
    """Counts what runs and what was promised. Not thread safe: it belongs to the loop.

    Args:
        capacity: returns how many tasks may run or be promised at once by now.
        reserved_seconds: after this long an accepted INVITE that no START followed gives its slot back.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        capacity: Callable[[], int],
        *,
        reserved_seconds: float = RESERVED_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._capacity = capacity
        self._reserved_seconds = reserved_seconds
        self._clock = clock
        self._reserved: dict[str, _Promise] = {}
        self._running: set[str] = set()

    @property
    def capacity(self) -> int:
        """How many tasks may run or be promised at once by now; those that run already go on."""
        return self._capacity()

    @property
    def in_use(self) -> int:
        """Slots that run or are promised."""
        self._expire()
        return len(self._running) + len(self._reserved)

    def reserve(self, delegation_id: str, seconds: float | None = None, *, holder: str = "") -> str | None:
        """Promise a slot to a delegation; a repeated INVITE keeps the one it has, with its time begun anew.

        Args:
            delegation_id: of the delegation.
            seconds: how long the promise holds without a START; as long as any does where it is None.
            holder: the peer that asks.

        Returns:
            The delegation of another peer that lost its promise to this one, or None.

        Raises:
            SubletError: ``DECLINED`` where all are taken, with a hint when to try again (AWCP 4.5).
        """
        if delegation_id in self._running:
            return None
        lost = None
        if delegation_id not in self._reserved and self.in_use >= self.capacity:
            lost = self._spared_by_others(holder)
            if lost is None:
                raise self._full()
            del self._reserved[lost]
        until = self._clock() + min(self._reserved_seconds, self._reserved_seconds if seconds is None else seconds)
        self._reserved[delegation_id] = _Promise(holder, until)
        return lost

    def release(self, delegation_id: str) -> None:
        """Give a promised slot back; quiet where there is none."""
        self._reserved.pop(delegation_id, None)

    @contextlib.contextmanager
    def run(self, delegation_id: str) -> Iterator[None]:
        """Hold the delegation's slot while its task runs. A promise that has expired is renewed if a slot is free.

        Raises:
            SubletError: ``DECLINED`` where all are taken, or this delegation runs already.
        """
        if delegation_id in self._running:
            raise SubletError(ErrorCode.DECLINED, "this delegation runs already", "Wait for it, or cancel it first.")
        if delegation_id not in self._reserved:
            if self.in_use >= self.capacity:
                raise self._full()
        else:
            del self._reserved[delegation_id]
        self._running.add(delegation_id)
        try:
            yield
        finally:
            self._running.discard(delegation_id)

    def _expire(self) -> None:
        now = self._clock()
        for delegation_id in [known for known, one in self._reserved.items() if one.until <= now]:
            del self._reserved[delegation_id]

    def _spared_by_others(self, holder: str) -> str | None:
        """Return the promise that lapses first of the peer with most, where that has two more than ``holder``."""
        held = Counter(one.holder for one in self._reserved.values())
        most = max(held, key=held.__getitem__, default=holder)
        if held[most] < held[holder] + 2:
            return None
        of_most = {known: one.until for known, one in self._reserved.items() if one.holder == most}
        return min(of_most, key=of_most.__getitem__)

    def _full(self) -> SubletError:
        waits = [one.until - self._clock() for one in self._reserved.values()]
        seconds = max(1, round(min([*waits, RETRY_SECONDS])))
        return SubletError(
            ErrorCode.DECLINED,
            f"all {self.capacity} slots of this executor are taken",
            f"Try again in about {seconds} s, or ask another executor.",
            retry_after_seconds=seconds,
        )

"""Which account has which slot, and until when a slot is nobody else's.

A certificate with a slot's name can't be called back, so a slot is given to another account only after the last
certificate that was made for it has ended. Then it is free, also where its account has not been heard of any more: that
keeps its name, and gets another slot when it is back. Times are Unix seconds.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sublet.protocol.relay.errors import RelayCode, RelayRefusal

REST_SECONDS: Final = 600
"""How long a slot rests after the end of its last certificate: clocks differ."""


class SlotState(StrEnum):
    """How a slot stands."""

    FREE = "free"
    TAKEN = "taken"
    RESTING = "resting"


@dataclass(frozen=True, slots=True)
class SlotRow:
    """A slot that somebody has, or has had.

    Args:
        number: of the slot.
        state: ``taken`` or ``resting``.
        account: whose it is; empty for one that rests.
        until: when the last certificate that was made for it ends.
    """

    number: int
    state: SlotState
    account: str
    until: int


class Slots:
    """The slots of a relay. The rows that a change returns are to be kept before anybody hears of it.

    Args:
        count: how many there are.
        rows: those that are or were taken.
    """

    def __init__(self, count: int, rows: Iterable[SlotRow] = ()) -> None:
        self.count = count
        self._rows = {row.number: row for row in rows}
        self._of = {row.account: row.number for row in self._rows.values() if row.state is SlotState.TAKEN}
        self._free = [number for number in range(count) if number not in self._rows]
        heapq.heapify(self._free)
        self._ends = [(row.until, row.number) for row in self._rows.values()]
        """When each certificate ends that was made for a slot, and of which, the next one first."""
        heapq.heapify(self._ends)

    def state(self, number: int) -> SlotState:
        """Return how a slot stands."""
        row = self._rows.get(number)
        return row.state if row is not None else SlotState.FREE

    def of(self, account: str) -> int | None:
        """Return the slot that an account has."""
        return self._of.get(account)

    def account(self, number: int) -> str | None:
        """Return whose a slot is; None for one that is free or rests."""
        row = self._rows.get(number)
        return row.account if row is not None and row.state is SlotState.TAKEN else None

    def taken(self) -> int:
        """Return how many are taken."""
        return len(self._of)

    def next_for(self, account: str, now: float) -> int:
        """Return the slot that an account has, or would get; nothing changes.

        Raises:
            RelayRefusal: ``QUOTA_EXCEEDED`` where none is free.
        """
        self._wake(now)
        number = self._of.get(account)
        if number is not None:
            return number
        if not self._free:
            raise RelayRefusal(RelayCode.QUOTA_EXCEEDED, "all slots of this relay are taken")
        return self._free[0]

    def assign(self, account: str, until: int, now: float) -> SlotRow:
        """Give an account a slot, or keep it for longer, and return its row.

        Args:
            account: whose it is.
            until: when the certificate ends that is made for it now.
            now: the time.

        Raises:
            RelayRefusal: as ``next_for``.
        """
        number = self.next_for(account, now)
        before = self._rows.get(number)
        if before is None:
            heapq.heappop(self._free)
        row = SlotRow(number, SlotState.TAKEN, account, max(until, before.until if before is not None else 0))
        self._rows[number] = row
        heapq.heappush(self._ends, (row.until, number))
        self._of[account] = number
        return row

    def forget(self, account: str) -> SlotRow | None:
        """Take an account's slot away, which rests from then on; return its row, or None where it has none."""
        number = self._of.pop(account, None)
        if number is None:
            return None
        row = self._rows[number] = SlotRow(number, SlotState.RESTING, "", self._rows[number].until)
        return row

    def _wake(self, now: float) -> None:
        """Let those be free whose last certificate ended long enough ago."""
        while self._ends and self._ends[0][0] + REST_SECONDS < now:
            _, number = heapq.heappop(self._ends)
            row = self._rows.get(number)
            if row is None or row.until + REST_SECONDS >= now:
                continue  # a later certificate was made for it
            del self._rows[number]
            if row.state is SlotState.TAKEN:
                del self._of[row.account]
            if row.number < self.count:
                heapq.heappush(self._free, row.number)

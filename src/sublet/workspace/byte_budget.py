"""Counts bytes that a peer makes this daemon keep, wherever the peer decides how many there are.

Each place that keeps such bytes has a named budget. A budget may lie within another one, such as that of a lease within
that of its peer; bytes are then counted in both, and the tighter bound holds.
"""

from __future__ import annotations


class ByteBudget:
    """A named bound of bytes that are kept.

    Args:
        name: what is kept, for messages and the log.
        limit: bytes that may be kept at the same time.
        within: a wider budget in which the same bytes are counted as well.
    """

    __slots__ = ("_within", "held", "limit", "name")

    def __init__(self, name: str, limit: int, within: ByteBudget | None = None) -> None:
        self.name = name
        self.limit = limit
        self.held = 0
        self._within = within

    @property
    def free(self) -> int:
        """How many bytes more this budget has room for, whatever the wider ones say."""
        return self.limit - self.held

    def take(self, size: int) -> bool:
        """Count ``size`` more bytes; False, counting nothing, where they do not fit."""
        if self.held + size > self.limit:
            return False
        if self._within is not None and not self._within.take(size):
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        """Count ``size`` bytes less: they are kept no more."""
        self.held -= size
        if self._within is not None:
            self._within.give(size)

    def empty(self) -> None:
        """Give back whatever is held. Idempotent."""
        self.give(self.held)

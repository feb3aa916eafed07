"""Who gives way when all connections of a listener are taken: the one mechanism that every listener of ours uses.

A connection that arrives where all slots are taken is let in, and another one is ended for it, of idle strangers
several. Connections with work under way are never ended. Of the others, those go first that have not shown who they
are; among these, those of the address that holds the most; among those, the one that has been idle for longest. So
whoever opens many connections and stays silent, slow or half-open ends its own, and keeps nobody out.

Weak: callers behind one address share its fate, as do all processes of this machine on a loopback port. There the age
alone decides: an honest request takes milliseconds, so a flood has to open all slots within that time, again and again.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from typing import Final, Protocol

STRANGERS_AT_ONCE: Final = 16
"""The part of all slots that idle strangers are cleared from when there is none left: a sixteenth."""


class Standing(IntEnum):
    """How a connection stands; the lower gives way first."""

    STRANGE = 0
    """Idle, and nobody knows whose it is."""
    KNOWN = 1
    """Idle, of a caller that has shown who it is."""
    WORKING = 2
    """A request of it is being answered."""


class Slot(Protocol):
    """A connection that takes a slot."""

    @property
    def address(self) -> str:
        """Whose it is as far as the network tells: an IP address, or a process."""

    @property
    def standing(self) -> Standing:
        """How it stands now."""

    @property
    def idle_since(self) -> float:
        """Since when, in seconds of the loop's clock, it has done nothing; 0 where it works."""

    def give_way(self) -> None:
        """Say that there are too many, and end at once. It calls ``Slots.leave`` in the end, or has done so."""


class Slots:
    """The connections of one listener.

    Args:
        limit: how many there may be. Only connections that all work can bring it beyond.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._taken: dict[Slot, None] = {}

    def __len__(self) -> int:
        return len(self._taken)

    def take(self, slot: Slot) -> bool:
        """Take a slot, for which another connection may have to give way; False where all of them work.

        The caller refuses the connection then. It has its slot meanwhile, and is the first to give way.
        """
        free = len(self._taken) < self.limit or self._make_room()
        self._taken[slot] = None
        return free

    def working(self, address: str) -> int:
        """Return how many connections of that address work."""
        return sum(slot.address == address and slot.standing is Standing.WORKING for slot in self._taken)

    def leave(self, slot: Slot) -> None:
        """Give the slot back; does nothing the second time."""
        self._taken.pop(slot, None)

    def _make_room(self) -> bool:
        held = Counter(slot.address for slot in self._taken)
        ranked = sorted(
            ((slot.standing, -held[slot.address], slot.idle_since, slot) for slot in self._taken),
            key=lambda entry: entry[:3],
        )
        if ranked[0][0] is Standing.WORKING:
            return False
        # Several strangers at once, since looking at all costs more than a flood's connection does.
        most = max(1, self.limit // STRANGERS_AT_ONCE)
        strangers = [slot for standing, _, _, slot in ranked[:most] if standing is Standing.STRANGE]
        for slot in strangers or [ranked[0][3]]:
            # Left at once, since many connections may be accepted before the loop tells of one that is gone.
            self.leave(slot)
            slot.give_way()
        return True

"""Holds refs whose writers had seen a ref of another shard that is not here yet, until it is.

Where a ref stands follows from what its writer had seen, so it is not placed before that is known. Rules: in memory
alone, in bytes that are bounded; what is dropped is asked for again with the next difference. Weak: who names what
never was keeps their own refs from being taken, and nobody else's.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sublet.messaging.accepting.arrival import Arrival
from sublet.protocol.ezagent.yjs.update import ItemId

MAX_AWAITED_BYTES: Final = 8 << 20
"""Of all that waits."""
MAX_AWAITED_OF_CLIENT: Final = 1_024
"""Arrivals that wait for one client of one shard."""
ARRIVAL_BYTES: Final = 512
"""What an arrival takes in memory beside its bytes, about."""


class _Waits(NamedTuple):
    clock: int
    number: int
    arrival: Arrival


@dataclass
class AwaitedRefs:
    """Arrivals by the shard, the client and the clock that they wait for; used on the engine's thread."""

    size: int = 0
    _waits: dict[tuple[str, int], list[_Waits]] = field(default_factory=dict)
    _here: set[bytes] = field(default_factory=set)
    _number: int = 0

    def keep(self, name: str, item: ItemId, arrival: Arrival) -> bool:
        """Hold an arrival until an item of a document is here; tell whether there was room.

        Args:
            name: the document's id.
            item: what is waited for.
            arrival: what waits.
        """
        if arrival.envelope in self._here:
            return True
        size = arrival.size + ARRIVAL_BYTES
        waits = self._waits.setdefault((name, item[0]), [])
        if self.size + size > MAX_AWAITED_BYTES or len(waits) >= MAX_AWAITED_OF_CLIENT:
            if not waits:
                del self._waits[name, item[0]]
            return False
        self._number += 1
        insort(waits, _Waits(item[1], self._number, arrival), key=lambda one: one[:2])
        self._here.add(arrival.envelope)
        self.size += size
        return True

    def release(self, name: str, client: int, until: int) -> list[Arrival]:
        """Return what waited for a client of a document, up to a clock, and hold it no longer."""
        waits = self._waits.get((name, client))
        if not waits:
            return []
        ready = bisect_left(waits, until, key=lambda one: one.clock)
        found = [one.arrival for one in waits[:ready]]
        del waits[:ready]
        if not waits:
            del self._waits[name, client]
        for arrival in found:
            self._here.discard(arrival.envelope)
            self.size -= arrival.size + ARRIVAL_BYTES
        return found

    def drop(self) -> None:
        """Forget all, as after a commit that failed; it is asked for again."""
        self._waits.clear()
        self._here.clear()
        self.size = 0

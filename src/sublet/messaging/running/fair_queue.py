"""A queue of what peers send, bounded in bytes and in items, for each owner and for all of them together.

The owner is the peer over whose link something came, or, where a link proves nobody, whoever a message claims as its
signer; nothing is verified yet. When the queue is full, the owner with the most bytes loses its newest item, so that a
flood displaces itself and nobody else.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sublet.protocol.ezagent.bundle import RecordKind
from sublet.protocol.ezagent.sealing.envelope import is_sealed

ITEM_BYTES: Final = 512
"""What an item takes beside its payload, for queues that count it."""
SHARED: Final = b"shared"
"""Owner of the items whose owners find no queue of their own."""
MAX_RECORDS_READ: Final = 64
"""Records of a bundle that are passed over to find its first envelope."""
_HEAD_BYTES: Final = 3
_SIGNER_BYTES: Final = 320
_BUNDLE_HEAD_BYTES: Final = 2
_RECORD_HEAD_BYTES: Final = 5

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much a queue holds.

    Args:
        items: of all owners.
        size: bytes, of all owners.
        items_of_owner: of one owner.
        size_of_owner: bytes, of one owner.
        owners: queues of owners; later owners share one, but for those that are proven.
    """

    items: int
    size: int
    items_of_owner: int
    size_of_owner: int
    owners: int = 1_024


class FairQueue(Generic[ItemT]):
    """Items in turn of their owners. Not thread-safe.

    Args:
        bounds: how much it holds.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._queues: dict[bytes, deque[tuple[ItemT, int]]] = {}
        self._sizes: dict[bytes, int] = {}
        self._count = 0
        self.size = 0
        """Bytes of all items."""

    def __len__(self) -> int:
        return self._count

    @property
    def owners(self) -> int:
        """How many have something waiting."""
        return len(self._queues)

    def add(self, owner: bytes, item: ItemT, size: int, *, is_proven: bool = False) -> list[ItemT]:
        """Add an item; return the items that found no room: this one, or newest items of the largest owner.

        Args:
            owner: whose share it takes.
            item: the item.
            size: its bytes.
            is_proven: whether nobody makes up such an owner, so that each has a queue of its own.
        """
        bounds = self._bounds
        if not is_proven and owner not in self._queues and len(self._queues) >= bounds.owners:
            owner = SHARED
        mine = self._queues.get(owner, ())
        size_after = self._sizes.get(owner, 0) + size
        if len(mine) >= bounds.items_of_owner or size_after > bounds.size_of_owner or size > bounds.size:
            return [item]
        displaced: list[ItemT] = []
        while self.size + size > bounds.size:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            if largest == owner or self._sizes[largest] <= size_after:
                return [*displaced, item]
            displaced.append(self._drop_newest(largest))
        while self._count >= bounds.items:
            longest = max(self._queues, key=lambda one: len(self._queues[one]))
            if longest == owner or len(self._queues[longest]) <= len(mine) + 1:
                return [*displaced, item]
            displaced.append(self._drop_newest(longest))
        self._queues.setdefault(owner, deque()).append((item, size))
        self._sizes[owner] = size_after
        self._count += 1
        self.size += size
        return displaced

    def take(self) -> ItemT | None:
        """Return the oldest item of the owner whose turn it is; None where nothing waits."""
        owner = next(iter(self._queues), None)
        if owner is None:
            return None
        mine = self._queues.pop(owner)
        item, size = mine.popleft()
        self._took(owner, size)
        if mine:
            self._queues[owner] = mine  # behind all others now
        else:
            del self._sizes[owner]
        return item

    def clear(self) -> list[ItemT]:
        """Return all items, and hold none of them any longer."""
        items = [item for mine in self._queues.values() for item, _ in mine]
        self._queues.clear()
        self._sizes.clear()
        self._count = self.size = 0
        return items

    def _drop_newest(self, owner: bytes) -> ItemT:
        mine = self._queues[owner]
        item, size = mine.pop()
        self._took(owner, size)
        if not mine:
            del self._queues[owner], self._sizes[owner]
        return item

    def _took(self, owner: bytes, size: int) -> None:
        self._sizes[owner] -= size
        self._count -= 1
        self.size -= size


def claimed_signer(envelope: bytes, start: int = 0) -> bytes:
    """Return the signer that an envelope claims, unverified; nothing where it is cut off.

    Args:
        envelope: the bytes that hold it.
        start: where it begins in them.
    """
    length = int.from_bytes(envelope[start + 1 : start + _HEAD_BYTES], "big")
    start += _HEAD_BYTES
    return envelope[start : start + min(length, _SIGNER_BYTES)]


def claimed_sender(bundle: bytes) -> bytes:
    """Return the signer that the first envelope of a bundle claims, unverified; nothing where there is none."""
    if is_sealed(bundle):
        return claimed_signer(bundle)  # the device that has sealed it
    place = _BUNDLE_HEAD_BYTES
    for _ in range(MAX_RECORDS_READ):
        if place + _RECORD_HEAD_BYTES > len(bundle):
            break
        if bundle[place] == RecordKind.ENVELOPE:
            return claimed_signer(bundle, place + _RECORD_HEAD_BYTES)
        place += _RECORD_HEAD_BYTES + int.from_bytes(bundle[place + 1 : place + _RECORD_HEAD_BYTES], "big")
    return b""

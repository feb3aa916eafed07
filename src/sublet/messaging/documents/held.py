"""Keeps updates of one document that wait for others, within bounds.

Rules: no signer's gaps push out another's; each waiting update is looked at once for each thing it needs. Weak: what is
pushed out comes again only with the next difference.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from sublet.messaging.documents.in_memory import InMemory
from sublet.protocol.ezagent.envelope import Envelope
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.yjs.update import ItemId, Update

MAX_HELD: Final = 1_024
MAX_HELD_BYTES: Final = 8 << 20
MAX_HELD_OF_SIGNER: Final = 256
"""So that nobody's gaps push out what others have sent."""


class Need(NamedTuple):
    """What an update waits for, and how many of its items and deletions before that need nothing."""

    item: ItemId
    begin: int


@dataclass(slots=True)
class HeldUpdate:
    """An update that waits for others, verified already."""

    envelope: Envelope
    update: Update
    need: Need


class HeldUpdates:
    """What waits; the oldest go where there are too many, and are asked for again with the gap.

    Args:
        counted: with which other documents it is counted together.
    """

    def __init__(self, counted: InMemory | None = None) -> None:
        self._counted = counted or InMemory()
        self._held: OrderedDict[bytes, HeldUpdate] = OrderedDict()
        self._of_signer: Counter[EntityId] = Counter()
        self.size = 0
        """Bytes of all payloads."""
        self.changes = 0
        """How often something was added or taken away."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[HeldUpdate]:
        return iter(self._held.values())

    def add(self, digest: bytes, envelope: Envelope, update: Update, need: Need) -> None:
        """Keep an update until what it needs is here."""
        if digest in self._held:
            return
        signer = envelope.signer
        if self._of_signer[signer] >= MAX_HELD_OF_SIGNER:
            self._drop(next(key for key, held in self._held.items() if held.envelope.signer == signer))
        self.changes += 1
        self._held[digest] = HeldUpdate(envelope, update, need)
        self._of_signer[signer] += 1
        self._grow(len(envelope.payload))
        while len(self._held) > MAX_HELD or self.size > MAX_HELD_BYTES:
            self._drop(next(iter(self._held)))

    def take(
        self, is_absent: Callable[[ItemId], bool], next_need: Callable[[Update, int], Need | None]
    ) -> list[HeldUpdate]:
        """Return those that need nothing any more, and hold them no longer.

        Args:
            is_absent: tells whether an item is not here yet.
            next_need: returns what an update needs, from the item or deletion of a number on: each is looked at once.
        """
        ready: list[bytes] = []
        for digest, held in self._held.items():
            if is_absent(held.need.item):
                continue
            need = next_need(held.update, held.need.begin)
            if need is None:
                ready.append(digest)
            else:
                held.need = need
        return [self._drop(digest) for digest in ready]

    def _drop(self, digest: bytes) -> HeldUpdate:
        self.changes += 1
        held = self._held.pop(digest)
        self._of_signer[held.envelope.signer] -= 1
        self._grow(-len(held.envelope.payload))
        return held

    def let_go(self) -> None:
        """Be counted no more, since the document is closed."""
        self._counted.held_bytes -= self.size
        self._counted = InMemory()

    def _grow(self, size: int) -> None:
        self.size += size
        self._counted.held_bytes += size

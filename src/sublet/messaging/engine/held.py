"""Updates of one document that wait for others, within bounds."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from sublet.protocol.ezagent.envelope import Envelope
from sublet.protocol.ezagent.ids import EntityId
from sublet.protocol.ezagent.yjs.model import Update

MAX_HELD: Final = 1_024
MAX_HELD_BYTES: Final = 8 << 20
MAX_HELD_OF_SIGNER: Final = 256
"""So that nobody's gaps push out what others have sent."""


@dataclass(slots=True)
class Held:
    """An update that waits for others, verified already."""

    envelope: Envelope
    update: Update


class HeldUpdates:
    """What waits; the oldest go where there are too many, and are asked for again with the gap."""

    def __init__(self) -> None:
        self._held: OrderedDict[bytes, Held] = OrderedDict()
        self._of_signer: Counter[EntityId] = Counter()
        self.size = 0
        """Bytes of all payloads."""
        self.changes = 0
        """How often something was added or taken away."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def add(self, digest: bytes, envelope: Envelope, update: Update) -> None:
        """Keep an update until what it needs is here."""
        if digest in self._held:
            return
        signer = envelope.signer
        if self._of_signer[signer] >= MAX_HELD_OF_SIGNER:
            self._drop(next(key for key, held in self._held.items() if held.envelope.signer == signer))
        self.changes += 1
        self._held[digest] = Held(envelope, update)
        self._of_signer[signer] += 1
        self.size += len(envelope.payload)
        while len(self._held) > MAX_HELD or self.size > MAX_HELD_BYTES:
            self._drop(next(iter(self._held)))

    def take(self, ready: Callable[[Update], bool]) -> list[Held]:
        """Return those that are ready, and hold them no longer."""
        return [self._drop(digest) for digest in [key for key, held in self._held.items() if ready(held.update)]]

    def _drop(self, digest: bytes) -> Held:
        self.changes += 1
        held = self._held.pop(digest)
        self._of_signer[held.envelope.signer] -= 1
        self.size -= len(held.envelope.payload)
        return held

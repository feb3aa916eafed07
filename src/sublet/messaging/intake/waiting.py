"""Keeps what waits until its signer's key is known, which is asked for.

Rules: members and strangers wait apart, so that no stranger takes a member's place; both are bounded in signers and in
bytes. Weak: what is given up is asked for again only once its signer is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sublet.protocol.ezagent.ids import EntityId

if TYPE_CHECKING:
    from sublet.messaging.accepting.arrival import Arrival

MAX_UNKNOWN_SIGNERS: Final = 256
"""Of more the oldest go: anybody may name a signer whom nobody knows."""
MAX_WAITING_FOR_KEY: Final = 256
"""Of one signer."""
MAX_WAITING_BYTES: Final = 16 << 20
"""Of all of them; what finds no room is asked for once its signer is known."""


class WaitingForKeys:
    """Envelopes by their signers, of whom nobody knows yet whether they have signed them.

    Members have one of these for themselves, so that no stranger takes their place.
    """

    def __init__(self) -> None:
        self._by_signer: dict[EntityId, list[Arrival]] = {}
        self.size = 0
        """How many bytes all of them take."""

    def __contains__(self, entity: EntityId) -> bool:
        return entity in self._by_signer

    def keep(self, signer: EntityId, arrival: Arrival) -> None:
        """Keep what came, in place of the oldest."""
        if signer not in self._by_signer and len(self._by_signer) >= MAX_UNKNOWN_SIGNERS:
            self.release(next(iter(self._by_signer)))
        waiting = self._by_signer.setdefault(signer, [])
        if len(waiting) < MAX_WAITING_FOR_KEY and self.size + arrival.size <= MAX_WAITING_BYTES:
            waiting.append(arrival)
            self.size += arrival.size

    def release(self, signer: EntityId) -> list[Arrival]:
        """Return what has waited for a signer's key, in the order in which it came."""
        waited = self._by_signer.pop(signer, [])
        self.size -= sum(arrival.size for arrival in waited)
        return waited

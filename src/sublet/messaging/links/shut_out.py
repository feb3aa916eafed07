"""Peers that are let in no more for a while, since they said over a link what no daemon says."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from sublet.messaging.links.declared import DeclaredByPeer

SHUT_OUT_SECONDS: Final = 10.0
"""For the first time; twice as long for each further one."""
MAX_SHUT_OUT_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class Offence:
    """What a peer has said.

    Args:
        why: what no daemon says.
        seconds: how long it is shut out for it.
        until: when that ends, by the clock.
    """

    why: str
    seconds: float
    until: float


@dataclass(slots=True, eq=False)
class ShutOut:
    """Who is shut out, by key, and why, and what each has declared; one entry for each pinned key at most.

    Args:
        clock: seconds that never go back.
    """

    clock: Callable[[], float] = time.monotonic
    declared: dict[bytes, DeclaredByPeer] = field(default_factory=dict)
    _of: dict[bytes, Offence] = field(default_factory=dict)

    def note(self, peer: bytes, why: str) -> Offence:
        """Shut a peer out, for longer if it was not long ago that it was."""
        now, before = self.clock(), self._of.get(peer)
        recent = before is not None and now - before.until < MAX_SHUT_OUT_SECONDS
        seconds = min(2 * before.seconds, MAX_SHUT_OUT_SECONDS) if before and recent else SHUT_OUT_SECONDS
        self._of[peer] = made = Offence(why, seconds, now + seconds)
        return made

    def admits(self, peer: bytes) -> bool:
        """Tell whether a peer may have a link."""
        offence = self._of.get(peer)
        return offence is None or offence.until <= self.clock()

    def told(self) -> dict[bytes, str]:
        """Return why peers are shut out, or were not long ago; any thread may call."""
        now = self.clock()
        return {peer: one.why for peer, one in list(self._of.items()) if now - one.until < MAX_SHUT_OUT_SECONDS}

    def keep(self, peers: Collection[bytes]) -> None:
        """Forget all others."""
        self.declared = {peer: one for peer, one in self.declared.items() if peer in peers}
        self._of = {peer: offence for peer, offence in self._of.items() if peer in peers}

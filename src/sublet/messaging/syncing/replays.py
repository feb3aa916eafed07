"""Which questions were asked before: a share of memory for each peer, so that no peer pushes out what another asked.

A peer is the daemon whose key vouches for the asker (its domain). A question is of now, or it is refused as stale; so
only questions of the last minutes are remembered. Where a peer asks more than its share, its oldest questions are
forgotten, and whatever it signed by then is refused from then on: nothing that was forgotten can be replayed.
"""

from __future__ import annotations

import heapq
from typing import Final

from sublet.protocol.ezagent.question import MAX_AGE_MS

MAX_NONCES_OF_PEER: Final = 4_096
MAX_NONCES: Final = 32_768
"""Of all peers; about 200 bytes each. Beyond it, the peer with the most forgets first."""
MAX_PEERS: Final = 4_096
"""Peers that are remembered without a question of the last minutes."""


class SeenQuestions:
    """The nonces of questions that were answered. Used on the engine's thread."""

    def __init__(self) -> None:
        self._peers: dict[str, _Peer] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def is_first(self, peer: str, nonce: bytes, signed_ms: int, now_ms: int) -> bool:
        """Tell whether a question was not asked before, and remember it.

        Args:
            peer: domain of the asker.
            nonce: of the question.
            signed_ms: when its asker signed it, Unix milliseconds; it was checked to be of now.
            now_ms: the time.
        """
        seen = self._peers.get(peer)
        if seen is None:
            if len(self._peers) >= MAX_PEERS:
                self._expire_all(now_ms)
            seen = self._peers[peer] = _Peer()
        self._count -= seen.expire(now_ms - MAX_AGE_MS)
        if signed_ms <= seen.forgotten_ms or nonce in seen.nonces:
            return False
        if len(seen.nonces) >= MAX_NONCES_OF_PEER:
            seen.forget_oldest()
            self._count -= 1
        if self._count >= MAX_NONCES and not self._make_room(now_ms):
            return False
        self._peers[peer] = seen
        seen.add(nonce, signed_ms)
        self._count += 1
        return True

    def _make_room(self, now_ms: int) -> bool:
        """Forget what is too old, or else what the peer with the most has asked; tell whether there is room."""
        self._expire_all(now_ms)
        if self._count < MAX_NONCES:
            return True
        largest = max(self._peers.values(), key=lambda seen: len(seen.nonces))
        if len(largest.nonces) <= 1:
            return False  # as many peers as nonces
        for _ in range(len(largest.nonces) // 2):  # many at once, since it takes a look at all peers
            largest.forget_oldest()
            self._count -= 1
        return True

    def _expire_all(self, now_ms: int) -> None:
        for peer, seen in list(self._peers.items()):
            self._count -= seen.expire(now_ms - MAX_AGE_MS)
            if not seen.nonces:
                del self._peers[peer]


class _Peer:
    """What one peer has asked."""

    def __init__(self) -> None:
        self.nonces: set[bytes] = set()
        self.forgotten_ms = 0
        """What was signed by then may have been forgotten."""
        self._by_time: list[tuple[int, bytes]] = []

    def add(self, nonce: bytes, signed_ms: int) -> None:
        self.nonces.add(nonce)
        heapq.heappush(self._by_time, (signed_ms, nonce))

    def forget_oldest(self) -> None:
        self.forgotten_ms, nonce = heapq.heappop(self._by_time)
        self.nonces.discard(nonce)

    def expire(self, before_ms: int) -> int:
        """Forget what was signed before a time, since it is refused anyway; return how much that was."""
        count = len(self.nonces)
        while self._by_time and self._by_time[0][0] < before_ms:
            self.nonces.discard(heapq.heappop(self._by_time)[1])
        return count - len(self.nonces)

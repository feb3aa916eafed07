"""Replay memory that outlives the process (DESIGN 9.9).

``first_seen`` does not wait for the disk, and need not: the nonce goes into the store's one queue before anything that
the message will cause. So whatever outlasts a kill of what the message did, the nonce outlasts it too; and where the
nonce was lost, nothing had come of the message, and the sender's copy may as well count as the first.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sublet.daemon.storage.store import Store
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.signing import MAX_CLOCK_SKEW_SECONDS, Nonces

MAX_NONCES = 200_000
"""Within the clock skew window; only messages whose signature holds get this far, so only peers can fill it."""
MAX_OF_ONE = 50_000
"""Of them, from one caller: a busy one needs some twenty thousand."""
KEPT_FOR_EACH = 2_000
"""From a caller, where others have filled the memory: it goes on, and is only not as busy as it could be."""
PRUNE_SECONDS = 60


class NonceMemory:
    """The nonces of all signed messages that could still be replayed.

    Each caller has a share, so that none who sends without end keeps the others, or the person at this machine, out.

    A nonce is forgotten once its message is too old by both clocks: the one that people set, and which may leap ahead
    and back, and the one that only goes on.
    """

    def __init__(
        self, store: Store, seen: Mapping[bytes, int], clock: Callable[[], float], steady: Callable[[], float]
    ) -> None:
        self._store = store
        # How long these are known is not: the clock may have leapt before the last stop as well as since.
        until = steady() + 2 * MAX_CLOCK_SKEW_SECONDS
        self._seen = {key: _Seen(at, until, "") for key, at in seen.items()}
        self._held: Counter[str] = Counter()
        self._clock = clock
        self._steady = steady
        self._pruned_at = steady()

    @classmethod
    async def load(
        cls, store: Store, clock: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> NonceMemory:
        """Return what the store remembers.

        Args:
            store: keeps them.
            clock: Unix time in seconds.
            steady: seconds that never go back, from any moment on.
        """

        def work(connection: sqlite3.Connection) -> dict[bytes, int]:
            return {row["hash"]: row["at"] for row in connection.execute("SELECT hash, at FROM nonces")}

        # By way of the writer, after what an earlier memory has posted.
        return cls(store, await store.write(work), clock, steady)

    def first_seen(self, nonce: str, at: int) -> bool:
        """Tell whether ``nonce`` is new, and remember it, whatever callers have sent: for what a person here signs."""
        return self.seen_of("", nonce, at)

    def of(self, caller: str) -> Nonces:
        """``SharedNonces.of``."""
        return _Share(self, caller)

    def seen_of(self, caller: str, nonce: str, at: int) -> bool:
        """Tell whether ``nonce``, signed at ``at`` (Unix seconds), is new, and remember it as ``caller``'s.

        A nonce from outside the clock skew window is never new, since it may have been forgotten already.

        Raises:
            SubletError: ``UNAVAILABLE`` where so many were seen that no more can be remembered.
        """
        now, steady = self._clock(), self._steady()
        if steady - self._pruned_at >= PRUNE_SECONDS:
            self._prune(int(now), steady)
        key = hashlib.sha256(nonce.encode("utf-8", "surrogatepass")).digest()
        if abs(now - at) > MAX_CLOCK_SKEW_SECONDS or key in self._seen:
            return False
        held = self._held[caller]
        full = held >= MAX_OF_ONE or (len(self._seen) >= MAX_NONCES and held >= KEPT_FOR_EACH)
        if caller and full:
            raise SubletError(LocalCode.UNAVAILABLE, "too many messages in a short time", "Try again in some minutes.")

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT OR IGNORE INTO nonces (hash, at) VALUES (?, ?)", (key, at))

        self._store.post(work)
        self._seen[key] = _Seen(at, steady + at + MAX_CLOCK_SKEW_SECONDS - now, caller)
        self._held[caller] += 1
        return True

    def _prune(self, now: int, steady: float) -> None:
        self._pruned_at = steady
        oldest = now - MAX_CLOCK_SKEW_SECONDS
        self._seen = {key: seen for key, seen in self._seen.items() if seen.at >= oldest or seen.until > steady}
        self._held = Counter(seen.caller for seen in self._seen.values())
        oldest = min(oldest, min((seen.at for seen in self._seen.values()), default=oldest))

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM nonces WHERE at < ?", (oldest,))

        self._store.post(work)


class _Seen(NamedTuple):
    """When a message was signed (Unix seconds), until when on the steady clock it counts, and whose it was."""

    at: int
    until: float
    caller: str


class _Share:
    def __init__(self, memory: NonceMemory, caller: str) -> None:
        self._memory = memory
        self._caller = caller

    def first_seen(self, nonce: str, at: int) -> bool:
        return self._memory.seen_of(self._caller, nonce, at)

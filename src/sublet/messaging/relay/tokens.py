"""Who is announced to whom over a relay: the tokens of each client, and those that stand for them at others.

Rules: a daemon announces its own entities alone, in rooms alone, and a bounded number of them; the others of the room
see it as long as both are in it. Used on the forwarder's thread, but for ``came`` and ``went``, which any may call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sublet.messaging.links.declared import MAX_ANNOUNCED

Declare = Callable[[str, str], Callable[[], None]]


@dataclass(slots=True, eq=False)
class ForwardedTokens:
    """Tokens of clients.

    Args:
        declare: declares a token at a slot, by its key there; its result ends that.
    """

    declare: Declare
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _there: dict[str, set[str]] = field(default_factory=dict)
    """Keys that each slot announces, as its link tells."""
    _shown: dict[tuple[str, str], dict[str, Callable[[], None]]] = field(default_factory=dict)
    """By slot and key, at which other slots that is shown, and what ends it."""

    def came(self, slot: str, key: str) -> bool:
        """Note that a slot announces a key; tell whether it may announce as many."""
        with self._lock:
            keys = self._there.setdefault(slot, set())
            if key not in keys and len(keys) >= MAX_ANNOUNCED:
                return False
            keys.add(key)
            return True

    def went(self, slot: str, key: str) -> bool:
        """Note that a slot announces a key no longer; tell whether it did."""
        with self._lock:
            keys = self._there.get(slot, set())
            known = key in keys
            keys.discard(key)
            if not keys:
                self._there.pop(slot, None)
            return known

    def of(self, slot: str) -> list[str]:
        """Return the keys that a slot announces."""
        with self._lock:
            return list(self._there.get(slot, ()))

    def announcing(self) -> list[str]:
        """Return the slots that announce something."""
        with self._lock:
            return list(self._there)

    def show(self, slot: str, key: str, at: frozenset[str]) -> None:
        """Show a token of a slot at these others and at nobody else; what is announced no longer is shown to nobody."""
        with self._lock:
            if key not in self._there.get(slot, ()):
                at = frozenset()
        shown = self._shown.setdefault((slot, key), {})
        for other in shown.keys() - at:
            shown.pop(other)()
        for other in at - shown.keys():
            shown[other] = self.declare(other, key)
        if not shown:
            del self._shown[slot, key]

    def count(self) -> int:
        """Return how many tokens are announced."""
        with self._lock:
            return sum(map(len, self._there.values()))

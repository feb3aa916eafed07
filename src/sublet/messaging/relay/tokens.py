"""Who is announced to whom over a relay: the tokens of each client, and those that stand for them at others.

Rules: a daemon announces its own entities alone, in rooms alone, and a bounded number of them; the others of the room
see it as long as both are in it. Used on the forwarder's thread, but for ``came`` and ``went``, which any may call.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sublet.messaging.links.declared import MAX_ANNOUNCED
from sublet.messaging.relay.membership import place_of

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
    _in_room: dict[str, set[tuple[str, str]]] = field(default_factory=dict)
    """Slots and keys by the room of the key."""
    _shown: dict[tuple[str, str], dict[str, Callable[[], None]]] = field(default_factory=dict)
    """By slot and key, at which other slots that is shown, and what ends it."""

    def came(self, slot: str, key: str) -> bool:
        """Note that a slot announces a key; tell whether it may announce as many."""
        with self._lock:
            keys = self._there.setdefault(slot, set())
            if key not in keys and len(keys) >= MAX_ANNOUNCED:
                return False
            keys.add(key)
            if (room := _room_of(key)) is not None:
                self._in_room.setdefault(room, set()).add((slot, key))
            return True

    def went(self, slot: str, key: str) -> bool:
        """Note that a slot announces a key no longer; tell whether it did."""
        with self._lock:
            keys = self._there.get(slot, set())
            known = key in keys
            keys.discard(key)
            if not keys:
                self._there.pop(slot, None)
            if (room := _room_of(key)) is not None and (there := self._in_room.get(room)) is not None:
                there.discard((slot, key))
                if not there:
                    del self._in_room[room]
            return known

    def of(self, slot: str) -> list[str]:
        """Return the keys that a slot announces."""
        with self._lock:
            return list(self._there.get(slot, ()))

    def in_room(self, room: str) -> list[tuple[str, str]]:
        """Return what is announced in a room: slots and keys."""
        with self._lock:
            return sorted(self._in_room.get(room, ()))

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


def _room_of(key: str) -> str | None:
    place = place_of(key)
    return place.room_id if place is not None else None

"""Keeps what is known of who is present: bounded in items and in bytes, for each daemon and for all of them together.

Rules: what takes the place of something counts by what it adds. Weak: what an entry takes is an estimate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Generic, TypeAlias, TypeVar

from sublet.protocol.ezagent.ids import EntityId, RoomId

MAX_PRESENT: Final = 8_192
MAX_PRESENT_BYTES: Final = 8 << 20
MAX_PRESENT_OF_DAEMON: Final = 1_024
"""Of the entities of one daemon, in all rooms."""
MAX_PRESENT_BYTES_OF_DAEMON: Final = 1 << 20
ENTRY_BYTES: Final = 512
"""Memory of an entry beside its names and what was said."""

Key: TypeAlias = tuple[RoomId, EntityId]
ValueT = TypeVar("ValueT")


class KeptPassing(Generic[ValueT]):
    """Something about entities in rooms, within bounds of each daemon and of all of them.

    Args:
        home: returns the daemon at which an entity is at home.
    """

    def __init__(self, home: Callable[[EntityId], str]) -> None:
        self._home = home
        self._rooms: dict[RoomId, dict[EntityId, tuple[ValueT, int, str]]] = {}
        self._counts: Counter[str] = Counter()
        self._sizes: Counter[str] = Counter()
        self.count = self.size = 0

    def __contains__(self, key: Key) -> bool:
        return key[1] in self._rooms.get(key[0], ())

    def get(self, key: Key) -> ValueT | None:
        """Return what is kept under a key; None where nothing is."""
        found = self._rooms.get(key[0], {}).get(key[1])
        return found[0] if found is not None else None

    def all(self) -> list[tuple[Key, ValueT]]:
        """Return everything that is kept."""
        return [((room, entity), value) for room, of in self._rooms.items() for entity, (value, _, _) in of.items()]

    def of_room(self, room_id: RoomId) -> list[Key]:
        """Return the keys of a room."""
        return [(room_id, entity) for entity in self._rooms.get(room_id, ())]

    def has_room(self, key: Key, size: int) -> bool:
        """Tell whether something fits that takes so many bytes, in place of what is kept under its key."""
        home, known = self._home(key[1]), self._rooms.get(key[0], {}).get(key[1])
        more, grows = (1, _entry_size(key, size)) if known is None else (0, _entry_size(key, size) - known[1])
        return (grows <= 0 and not more) or (
            self.count + more <= MAX_PRESENT
            and self.size + grows <= MAX_PRESENT_BYTES
            and self._counts[home] + more <= MAX_PRESENT_OF_DAEMON
            and self._sizes[home] + grows <= MAX_PRESENT_BYTES_OF_DAEMON
        )

    def put(self, key: Key, value: ValueT, size: int) -> None:
        """Keep something in place of what was kept under its key; it takes ``size`` bytes beside its entry."""
        self.drop(key)
        home, size = self._home(key[1]), _entry_size(key, size)
        self._rooms.setdefault(key[0], {})[key[1]] = value, size, home
        self._counts[home] += 1
        self._sizes[home] += size
        self.count += 1
        self.size += size

    def drop(self, key: Key) -> None:
        """Give back what is kept under a key."""
        of_room = self._rooms.get(key[0], {})
        found = of_room.pop(key[1], None)
        if found is None:
            return
        if not of_room:
            del self._rooms[key[0]]
        _, size, home = found
        self._counts[home] -= 1
        self._sizes[home] -= size
        if not self._counts[home]:
            del self._counts[home], self._sizes[home]
        self.count -= 1
        self.size -= size


def _entry_size(key: Key, size: int) -> int:
    return ENTRY_BYTES + len(key[0]) + len(key[1]) + size

"""How much of the disk each daemon's entities have filled, by room, and when no more of them is taken.

The bound is a judgement of this daemon alone, so other replicas may hold more. None of what others show depends on it:
what a member's update builds on is taken whoever wrote it (``quotas.py``), and what nobody built upon is its
writer's own loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, TypeAlias

import structlog

from sublet.messaging.ports.rows import StagedUpdate
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.ids import EntityId, RoomId

DEFAULT_DAEMON_BYTES: Final = 4 << 30
"""Of all that the entities of one daemon have written here, in all rooms."""
ROW_BYTES: Final = 192
"""What an element, a write of a key or a deletion takes beside its update."""
SAVED_EVERY_BYTES: Final = 1 << 20
"""So much may be forgotten when the daemon is killed, so that a message costs no page more."""
_NO_ROOM: Final = ""

log = structlog.get_logger(__name__)

Share: TypeAlias = tuple[RoomId, str]
"""A room, or nothing for what an entity keeps for all its rooms, and the home daemon of who wrote it."""


class DiskUsage:
    """Counts what is kept.

    Args:
        store: where the counts are kept.
        limit: bytes of one daemon's entities.
        home: returns the daemon at which an entity is at home.
    """

    def __init__(self, store: Store, limit: int, home: Callable[[EntityId], str]) -> None:
        self._store = store
        self._home = home
        self.limit = limit
        self._full: set[str] = set()
        self._load()

    def charge(self, room_id: RoomId | None, signer: EntityId, size: int) -> None:
        """Note that more is kept of somebody.

        Args:
            room_id: the room; None for what is of no room.
            signer: who wrote it.
            size: bytes.
        """
        share = room_id or _NO_ROOM, self._home(signer)
        self._unsaved[share] += size
        self._totals[share[1]] += size

    def is_full(self, signer: EntityId, *, config: bool = False) -> bool:
        """Tell whether nothing more is taken of somebody; of a room's config a quarter more is."""
        home = self._home(signer)
        limit = self.limit + self.limit // 4 if config else self.limit
        full = self._totals[home] >= limit
        if full and home not in self._full:
            self._full.add(home)
            log.warning("a daemon has written as much as is kept of one", home=home, bytes=self._totals[home])
        return full

    def in_room(self, room_id: RoomId, signer: EntityId) -> int:
        """Return how many bytes are kept of the daemon of somebody in one room."""
        share = room_id, self._home(signer)
        return self._saved[share] + self._unsaved[share]

    def total(self, home: str) -> int:
        """Return how many bytes are kept of a daemon."""
        return self._totals[home]

    def save(self) -> None:
        """Keep the counts, inside a transaction."""
        due = [share for share, size in self._unsaved.items() if size >= SAVED_EVERY_BYTES]
        for share in due:
            self._saved[share] += self._unsaved.pop(share)
            self._store.trust.put_usage(*share, self._saved[share])

    def drop(self, room_id: RoomId) -> None:
        """Forget a room, which takes no place any more."""
        for counts in (self._saved, self._unsaved):
            for share in [share for share in counts if share[0] == room_id]:
                self._totals[share[1]] -= counts.pop(share)
        self._full.clear()

    def forget(self) -> None:
        """Go back to what is durable."""
        self._load()

    def _load(self) -> None:
        self._saved: Counter[Share] = Counter(self._store.trust.usage())
        self._unsaved: Counter[Share] = Counter()
        self._totals: Counter[str] = Counter()
        for (_, domain), size in self._saved.items():
            self._totals[domain] += size


def size_of(staged: StagedUpdate) -> int:
    """Return about how many bytes an update takes on the disk."""
    rows = 1 + len(staged.entries) + len(staged.writes) + len(staged.deletions)
    return len(staged.log.envelope) + rows * ROW_BYTES

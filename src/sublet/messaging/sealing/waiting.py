"""What waits until it can be sealed: a queue for each room, with a bound of its own, so that no room costs another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from sublet.messaging.ports.outbox import Outgoing
from sublet.protocol.ezagent.ids import RoomId

MAX_WAITING_BYTES_OF_ROOM: Final = 2 << 20
MAX_WAITING_BYTES: Final = 8 << 20
"""Of all rooms; where they are full, the room that has most waiting loses its oldest."""
BYTES_OF_ITEM: Final = 1_024
"""What an item takes besides its payload and attachment."""
BYTES_OF_NAME: Final = 128
"""What each daemon takes that an item is for."""


@dataclass(slots=True)
class _Queue:
    items: deque[Outgoing] = field(default_factory=deque)
    bytes: int = 0


class Waiting:
    """Queues of rooms; what does not fit is left to the next difference. Used on the engine's thread."""

    def __init__(self) -> None:
        self._queues: dict[RoomId, _Queue] = {}
        self._bytes = 0

    def put(self, room_id: RoomId, item: Outgoing) -> None:
        """Let something wait; the oldest of its room goes where that has too much, of the fullest where all have."""
        queue = self._queues.setdefault(room_id, _Queue())
        queue.items.append(item)
        queue.bytes += _bytes(item)
        self._bytes += _bytes(item)
        while queue.bytes > MAX_WAITING_BYTES_OF_ROOM:
            self._lose(room_id)
        while self._bytes > MAX_WAITING_BYTES:
            self._lose(max(self._queues, key=lambda room: self._queues[room].bytes))

    def _lose(self, room_id: RoomId) -> None:
        queue = self._queues[room_id]
        size = _bytes(queue.items.popleft())
        queue.bytes -= size
        self._bytes -= size
        if not queue.items:
            del self._queues[room_id]

    def take(self, rooms: Iterable[RoomId]) -> list[tuple[RoomId, Outgoing]]:
        """Return all that waits of some rooms, the oldest of each first, and hold it no longer."""
        taken: list[tuple[RoomId, Outgoing]] = []
        for room_id in rooms:
            queue = self._queues.pop(room_id, None)
            if queue is not None:
                self._bytes -= queue.bytes
                taken += ((room_id, item) for item in queue.items)
        return taken


def _bytes(item: Outgoing) -> int:
    return len(item.payload) + len(item.attachment) + BYTES_OF_ITEM + BYTES_OF_NAME * len(item.to or ())

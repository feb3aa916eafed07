"""Acknowledgements of others that wait to be read, within a bound in bytes and with a share for each signer.

An acknowledgement that finds no room is not lost: its room is named by ``missed``, and its members are asked.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from sublet.messaging.running.fair_queue import ITEM_BYTES, Bounds, FairQueue, claimed_sender
from sublet.protocol.ezagent.ids import RoomId

MAX_HEARD: Final = 4_096
"""Acknowledgements that wait."""
MAX_HEARD_BYTES: Final = 8 << 20
MAX_HEARD_OF_SIGNER: Final = 256
MAX_HEARD_BYTES_OF_SIGNER: Final = 1 << 20
MAX_ACKNOWLEDGEMENT_BYTES: Final = 256 << 10
"""Of one that is published; more is told in answers to our own questions."""


class HeardAcknowledgement(NamedTuple):
    """What was published in a room, unverified."""

    room_id: RoomId
    raw: bytes


class AcknowledgementQueue:
    """The queue of one daemon. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        bounds = Bounds(MAX_HEARD, MAX_HEARD_BYTES, MAX_HEARD_OF_SIGNER, MAX_HEARD_BYTES_OF_SIGNER)
        self._queue: FairQueue[HeardAcknowledgement] = FairQueue(bounds)
        self._missed: dict[RoomId, None] = {}

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def size(self) -> int:
        """Bytes that wait."""
        return self._queue.size

    def add(self, room_id: RoomId, raw: bytes) -> bool:
        """Add an acknowledgement; tell whether nothing waited before, so that the reader has to be woken."""
        item = HeardAcknowledgement(room_id, raw)
        with self._lock:
            was_idle = not self._queue and not self._missed
            if len(raw) > MAX_ACKNOWLEDGEMENT_BYTES:
                self._missed[room_id] = None
            else:
                for left_out in self._queue.add(claimed_sender(raw), item, len(raw) + ITEM_BYTES):
                    self._missed[left_out.room_id] = None
        return was_idle

    def take(self) -> HeardAcknowledgement | None:
        """Return the next one in turn of their signers; None where none waits."""
        with self._lock:
            return self._queue.take()

    def missed(self) -> list[RoomId]:
        """Return the rooms of which something found no room since the last call."""
        with self._lock:
            missed, self._missed = list(self._missed), {}
        return missed

"""What the engine needs of a store that forgets rooms."""

from __future__ import annotations

from typing import Protocol

from sublet.protocol.ezagent.ids import RoomId


class RemovalStore(Protocol):
    """Rooms that are forgotten: first noted, then removed little by little, and not taken up again when offered."""

    def begin(self, room_id: RoomId) -> None:
        """Note that a room is to be removed; inside a transaction."""

    def step(self) -> bool:
        """Remove some of what there is of such rooms; inside a transaction. Tell whether there may be more."""

    def forgotten(self) -> frozenset[RoomId]:
        """Return the rooms that are forgotten, removed already or not."""

    def is_forgotten(self, room_id: RoomId) -> bool:
        """Tell whether a room is."""

    def forgive(self, room_id: RoomId) -> None:
        """Let a room be taken up again; inside a transaction."""

    def size(self, room_id: RoomId) -> int:
        """Return how many bytes the log and the contents of a room take."""

"""What the services of rooms are made of: policy is asked, then the engine, as the entity of whoever calls."""

from __future__ import annotations

from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.rooms.finding import RoomFinder
from sublet.daemon.rooms.speaking import Speaking


class OfRooms:
    """A service of rooms.

    Args:
        gate: asks policy.
        speaking: reaches the engine, and knows as whom a caller speaks.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking


class OfNamedRooms(OfRooms):
    """A service of rooms that callers may name in words of theirs.

    Args:
        gate: asks policy.
        speaking: reaches the engine, and knows as whom a caller speaks.
        finder: knows which room is meant.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking, finder: RoomFinder) -> None:
        super().__init__(gate, speaking)
        self._finder = finder

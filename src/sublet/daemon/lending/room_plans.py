"""The room in which both sides of a delegation talk: an addition, without which nothing is different (DESIGN 4.11)."""

from __future__ import annotations

from typing import Final, Protocol

from sublet.daemon.storage.records import RoomRecord


class RoomPlans(Protocol):
    """Decides on rooms; it never waits and never fails."""

    def plan(self, peer_key: bytes, entity: str | None) -> RoomRecord | None:
        """Return the room that is going to be opened for a delegation; None where there is none.

        Args:
            peer_key: raw Ed25519 key of the executor's daemon.
            entity: as whom its agent speaks, as ACCEPT says.
        """


class _NoRooms:
    def plan(self, peer_key: bytes, entity: str | None) -> RoomRecord | None:
        return None


NO_ROOMS: Final[RoomPlans] = _NoRooms()

"""What the engine needs of the second place where it is kept which rooms were agreed to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from sublet.messaging.ports.invitation_store import Invitation
from sublet.protocol.ezagent.ids import RoomId


@dataclass(frozen=True, slots=True)
class WasAgreed:
    """What the database does not know any more.

    Args:
        rooms: that were here.
        answers: what was said to invitations.
    """

    rooms: tuple[RoomId, ...] = ()
    answers: tuple[Invitation, ...] = ()


class KeepsAgreed(Protocol):
    """Keeps what people have said yes and no to, beside the database; on the engine's thread. Nothing raises."""

    def begin(self, here: Collection[RoomId], answers: Collection[Invitation], now_ms: int) -> WasAgreed:
        """Take what the database holds, and return what it has lost.

        Args:
            here: the rooms that it has.
            answers: what was said to invitations; nothing and no rooms where it was begun anew.
            now_ms: the time, Unix milliseconds.
        """

    def taken_up(self, room_id: RoomId) -> None:
        """Note that a room is here."""

    def let_go(self, room_id: RoomId) -> None:
        """Note that a room is here no more, since somebody here wants that."""

    def answered(self, invitation: Invitation) -> None:
        """Note what was said to an invitation."""

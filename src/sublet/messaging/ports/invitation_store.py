"""What the engine needs of a store of invitations: rooms that somebody brings ours into, and that are not here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from sublet.protocol.ezagent.ids import EntityId, RoomId


class Answer(StrEnum):
    """What somebody here has said to an invitation."""

    PENDING = "pending"
    ACCEPTED = "accepted"
    """It is taken up as soon as somebody tells of the room."""
    DECLINED = "declined"


@dataclass(frozen=True, slots=True)
class Invitation:
    """A room that ours were invited to and that is not here.

    Args:
        room_id: the room.
        home: node id of the daemon of who invites.
        by: who has signed the grant.
        whom: those of ours who are invited.
        name: of the room.
        members: who is in it, the first by name.
        member_count: how many those are in all.
        answer: what was said to it here.
        at_ms: when it came, or when that was said; Unix milliseconds.
        kept: the room's config as it was offered, or the no that is told; nothing where that would be too long.
        is_told: whether somebody has taken the no.
    """

    room_id: RoomId
    home: str
    by: EntityId
    whom: tuple[EntityId, ...]
    name: str
    members: tuple[EntityId, ...]
    member_count: int
    answer: Answer
    at_ms: int
    kept: bytes = b""
    is_told: bool = False

    @property
    def size(self) -> int:
        """Return about how many bytes it takes here."""
        words = (self.home, self.by, self.name, *self.whom, *self.members)
        return ROW_BYTES + len(self.kept) + sum(len(word.encode()) for word in words)


@dataclass(frozen=True, slots=True)
class Kept:
    """An invitation without what is kept of it: what is counted."""

    room_id: RoomId
    home: str
    by: EntityId
    answer: Answer
    size: int
    is_told: bool


ROW_BYTES: Final = 256
"""What an invitation takes beside what is written in it."""


class InvitationStore(Protocol):
    """Invitations, few of each daemon."""

    def get(self, room_id: RoomId) -> Invitation | None:
        """Return the invitation to a room, if there is one."""

    def all(self) -> list[Invitation]:
        """Return all, the oldest first."""

    def kept(self) -> list[Kept]:
        """Return how much is kept of each, the oldest first."""

    def put(self, invitation: Invitation) -> None:
        """Keep an invitation in place of what was known of it; inside a transaction."""

    def drop(self, room_id: RoomId) -> None:
        """Forget an invitation; inside a transaction."""

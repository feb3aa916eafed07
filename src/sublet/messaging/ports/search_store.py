"""What the engine needs of a store that finds messages by their words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sublet.protocol.ezagent.ids import RefId, RoomId

MS_DIGITS: Final = 15


def found_at(ref_id: RefId, at_ms: int) -> str:
    """Return where a message stands among those that are found: by a time, Unix milliseconds, then by its id."""
    return f"{at_ms:0{MS_DIGITS}}/{ref_id[-26:]}"


@dataclass(frozen=True, slots=True)
class UnreadRefs:
    """Refs of a room that were not looked at yet, up to a place in the log."""

    document: int
    room_id: RoomId
    ref_ids: tuple[RefId, ...]
    until: tuple[int, int]


class SearchStore(Protocol):
    """Words of messages. It is filled when somebody searches, so that sending a message costs nothing for it."""

    def doubt(self, ref_id: RefId) -> None:
        """Forget what a message says, and look at it again later; inside a transaction."""

    def due(self, rooms: Sequence[RoomId], limit: int) -> list[tuple[RoomId, int, RefId]]:
        """Return room, document and id of messages to look at again, those that wait longest first."""

    def unread(self, rooms: Sequence[RoomId], limit: int) -> list[UnreadRefs]:
        """Return refs that were not looked at yet, ``limit`` of them at most."""

    def put(self, document: int, ref_id: RefId, body: str, at: str) -> None:
        """Let a message be found by its words, in place of what it said; inside a transaction.

        Args:
            document: the number of its shard.
            ref_id: its id.
            body: what it says.
            at: where it stands among what is found, as ``found_at`` returns it.
        """

    def drop(self, ref_id: RefId) -> None:
        """Let a message be found no more; inside a transaction."""

    def looked_at(self, done: UnreadRefs) -> None:
        """Note up to where a document was looked at; inside a transaction."""

    def find(
        self, words: Sequence[str], rooms: Sequence[RoomId], limit: int, before: str | None
    ) -> list[tuple[RoomId, RefId]]:
        """Return messages that hold all words, by their beginnings, the newest first.

        Args:
            words: of letters and digits alone.
            rooms: where.
            limit: how many at most.
            before: the id of the last one of the page before, without a prefix.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: too many messages hold them.
        """

    def tidy(self) -> bool:
        """Overwrite some of what was forgotten, inside a transaction; tell whether there may be more."""

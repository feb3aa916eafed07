"""What purging needs of a database: what is gone of which message, and what is to be erased yet; an interface."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from sublet.messaging.ports.rows import DocumentRow
from sublet.protocol.ezagent.ids import ContentId, EntityId, RefId, RoomId
from sublet.protocol.ezagent.purge import Gone
from sublet.protocol.ezagent.yjs.update import ItemId


class Kind(StrEnum):
    """What is purged of a message."""

    REF = "ref"
    """The message, as its reader is shown it. Its name is its id."""
    CONTENT = "content"
    """An immutable content of its author's. Its name is its id."""
    DOCUMENT = "document"
    """A document that holds what an edited message says. Its name is its id."""
    FILE = "file"
    """A file that nothing names any more which is not purged. Its name is its hash, without ``sha256:``."""


class Due(StrEnum):
    """What is to be done yet, since it is no part of the transaction that purges."""

    DOCUMENT = "document"
    """A document is detached from its room, and its rows are removed little by little."""
    ROWS = "rows"
    """Rows of a document that is detached, by its number."""
    FILE = "file"
    """A file is removed where no other room names it."""
    DRAFT = "draft"
    """The log of what one of ours began to write, which holds what the message said before it was sent."""
    LACKING = "lacking"
    """A content is asked for again, since the tombstone that took it away counts no more."""
    DISK = "disk"
    """What has this mark is looked for in files of the database."""


@dataclass(frozen=True, slots=True)
class PurgedRow:
    """One thing that is gone with a message. ``author`` is the message's; the rest is of the tombstone."""

    kind: Kind
    name: str
    ref_id: RefId
    author: EntityId = ""
    what: Gone = Gone.MESSAGE
    by: EntityId = ""
    at: str = ""


@dataclass(frozen=True, slots=True)
class DueRow:
    """One thing that is to be done yet; ``mark`` are bytes by which it is known, where there are any."""

    due: Due
    room_id: RoomId
    name: str
    mark: bytes = b""


class PurgeStore(Protocol):
    """What is gone, and what is to be erased yet. Everything that writes is called inside a transaction."""

    def has_any(self, room_id: RoomId) -> bool:
        """Tell quickly whether anything of a room is gone."""

    def rows_of(self, room_id: RoomId, ref_id: RefId) -> list[PurgedRow]:
        """Return all that is gone with a message."""

    def rows_named(self, room_id: RoomId, kind: Kind, name: str) -> list[PurgedRow]:
        """Return the rows of one thing, one for each message with which it is gone."""

    def is_gone(self, room_id: RoomId, kind: Kind, name: str) -> bool:
        """Tell whether something is gone."""

    def is_place_gone(self, room_id: RoomId, place: bytes) -> bool:
        """Tell whether what stands at a place of a room's digest tree in other rooms' copies is gone here."""

    def put(self, room_id: RoomId, rows: Sequence[PurgedRow]) -> None:
        """Note what is gone."""

    def drop(self, room_id: RoomId, rows: Sequence[PurgedRow]) -> None:
        """Note that something is gone no more, since the tombstone counts no more."""

    def elements(self, room_id: RoomId, ref_id: RefId) -> list[tuple[DocumentRow, ItemId, EntityId]]:
        """Return all elements of a timeline with the id of a message, whether they count or not, with their authors."""

    def elements_with(self, room_id: RoomId, text: str) -> list[tuple[DocumentRow, ItemId, RefId]]:
        """Return the elements of a room's timeline whose updates hold a text; looks at all of the room's log."""

    def tombstones(self, room_id: RoomId, after: str, limit: int) -> list[str]:
        """Return the ids of some tombstones of a room in order, those after one."""

    def written_by(self, room_id: RoomId, signers: Sequence[EntityId]) -> list[str]:
        """Return the tombstones of a room that some entities have written."""

    def signers(self, room_id: RoomId) -> set[EntityId]:
        """Return who has written tombstones in a room."""

    def begun(self, room_id: RoomId) -> dict[EntityId, int]:
        """Return in how many tombstones of a room each entity has written."""

    def refuses(self, room_id: RoomId, content_id: ContentId, raw: bytes) -> bool:
        """Tell whether a content that somebody brings is gone, which is so for its author's own messages alone."""

    def content_documents(self, room_id: RoomId, content_id: ContentId) -> list[tuple[int, bytes]]:
        """Return where an immutable content is kept in a room: by numbers of documents, with its bytes."""

    def erase_content(self, document: int, content_id: ContentId) -> None:
        """Erase an immutable content, and note what is looked for on the disk."""

    def detach(self, doc_id: str, tombstone: str) -> None:
        """Take a document out of its room and its digest tree, in sight of nobody; ``erase_some`` removes its rows.

        What the room's root says was written gets no less: the tombstone's leaf says it from then on.

        Args:
            doc_id: the document.
            tombstone: the document that says that it is gone; empty where the room's tree holds nothing of it.
        """

    def erase_some(self, number: int) -> bool:
        """Erase some rows of a document that was detached; tell whether there may be more."""

    def due(self, due: Due, limit: int) -> list[DueRow]:
        """Return some of what is to be done yet."""

    def put_due(self, rows: Sequence[DueRow]) -> None:
        """Note what is to be done."""

    def drop_due(self, rows: Sequence[DueRow]) -> None:
        """Forget what was done."""

    def checkpoint(self) -> bool:
        """Write what was erased into the file, and nothing beside it; tell whether nobody kept that from being done."""

    def rewrite(self) -> None:
        """Write the whole file anew, without anything that was erased; outside of a transaction."""

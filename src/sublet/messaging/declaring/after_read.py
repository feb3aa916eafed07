"""What a hook may do after something was read, before it is answered: add to the answer (ezagent 2.2).

Rules: what is stored stays as it is; what a hook wants to write is written as the reader, after the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from sublet.messaging.declaring.operating import OperationContext, OperationParts, Shows
from sublet.messaging.declaring.reads_rooms import ReadsRooms
from sublet.messaging.events.events import Events
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.purge_store import Kind, PurgedRow
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.fields import Fields, FieldsView
from sublet.messaging.texts.texts import Texts
from sublet.messaging.writing.later import Later
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.room.state import RoomState


@dataclass(frozen=True, slots=True)
class ReadParts:
    """The parts that such a hook uses, by way of its context."""

    store: Store
    rooms: RoomStates
    documents: OpenDocuments
    reading: Reading
    shows: Shows
    texts: Texts
    events: Events
    later: Later
    operating: OperationParts


class AfterRead(ReadsRooms):
    """After data was read, before it is answered: add to the answer; what is stored stays as it is.

    ``query`` says which view of an extension the reader asks for, such as ``{"thread": ref_id}``. ``quoted`` tells that
    the items are shown inside those of another room, where nothing may quote any further; ``page`` that they follow
    each other in the room, as who reads it from top to bottom sees them.
    """

    _parts: ReadParts

    def __init__(
        self,
        parts: ReadParts,
        datatype: str,
        reader: EntityId,
        room_id: RoomId,
        items: list[Fields],
        query: Mapping[str, str] | None = None,
        *,
        quoted: bool = False,
        page: bool = False,
    ) -> None:
        self._parts = parts
        self.datatype = datatype
        self.reader = reader
        self.room_id = room_id
        self.items = items
        self.query: Mapping[str, str] = query or {}
        self.quoted = quoted
        self.page = page

    @property
    def room(self) -> RoomState:
        """Return the room's state."""
        return self._parts.rooms.state(self.room_id)

    @property
    def cursor(self) -> int:
        """Return the cursor of the last event before this was read."""
        return self._parts.events.cursor

    def content_of(self, ref: FieldsView) -> dict[str, JsonValue] | None:
        """Return the immutable content that a ref names; None where it is not here."""
        return self._parts.reading.content_of(ref)

    def read_refs(self, ref_ids: Iterable[RefId]) -> list[Fields]:
        """Return refs as they count, those that are here."""
        found = (self._parts.reading.ref(ref_id) for ref_id in ref_ids)
        return [ref for ref in found if ref is not None]

    def counting(self, ref_ids: Iterable[RefId]) -> set[RefId]:
        """Return those of some refs that are in this room and count; costs less than to read them."""
        return self._parts.reading.counting(self.room_id, ref_ids)

    def purged(self, ref_id: RefId) -> PurgedRow | None:
        """Return what of a message of this room is gone for good; None where nothing is."""
        rows = self._parts.store.purges.rows_named(self.room_id, Kind.REF, ref_id)
        return rows[0] if rows else None

    def quote(self, room_id: RoomId, ref_id: RefId) -> Fields | None:
        """Return a ref of any room as the reader sees it there; None where the reader sees none."""
        return self._parts.shows.quoted(self.reader, room_id, ref_id)

    def write_back(self, write: Callable[[OperationContext], object]) -> None:
        """Write as the reader, once what is being read is answered; by then other such writes may have been made."""
        self._parts.later.after_commit(lambda: write(OperationContext(self._parts.operating, self.reader)))

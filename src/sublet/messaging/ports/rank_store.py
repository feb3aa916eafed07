"""What the engine needs of a store that keeps where messages stand."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from sublet.messaging.ports.rows import AfterRow, DocumentRow, EntryRow
from sublet.protocol.ezagent.ids import RefId, RoomId
from sublet.protocol.ezagent.yjs.update import ItemId


class RankStore(Protocol):
    """Where messages stand in their rooms. Used by one thread."""

    def newest_ref(self, room_id: RoomId) -> RefId | None:
        """Return the id of the ref of a room that was accepted last and is shown; None where there is none."""

    def of_room(self, room_id: RoomId) -> dict[str, tuple[int, int]]:
        """Return the least and the highest rank in each shard of a room, by the document's id."""

    def of(self, document: int, item: ItemId) -> int | None:
        """Return the rank of an element by its item; None where it is none."""

    def holding(self, document: int, item: ItemId) -> EntryRow | None:
        """Return the last element that its writer has added up to an item, in the update of that item."""

    def named(self, document: int, entry_id: str) -> EntryRow | None:
        """Return the element of an id; of several of one author the one of the lowest item."""

    def afters(self, document: int) -> list[AfterRow]:
        """Return the refs of a shard that name refs of other shards."""

    def shards_after(self, doc_id: str) -> list[DocumentRow]:
        """Return the shards that have refs which name refs of a shard."""

    def put(self, document: int, entries: Iterable[EntryRow]) -> None:
        """Keep other ranks of refs; inside a transaction."""

"""What an operation has (ezagent 10.2): who asks, and the engine, on whose thread it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sublet.messaging.declaring.declaration import AnnotationPlace
from sublet.messaging.ports.store import IndexEntry
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.ezagent.yjs.encode import Nested

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine


class OperationContext:
    """What an operation has: who asks, one of ours and authenticated before, and the engine's parts."""

    def __init__(self, engine: Engine, entity: EntityId) -> None:
        self.engine = engine
        self.entity = entity

    def state(self, room_id: RoomId) -> RoomState:
        """Return the state of a room that the caller may read.

        Raises:
            SubletError: ``NOT_FOUND``: there is none here, or the caller is no member, which is not told apart.
        """
        state = self.engine.rooms.state(room_id)
        if state.role(self.entity) is None:
            raise SubletError(
                LocalCode.NOT_FOUND, "no such room, or you are not a member of it", "List rooms, or ask to be invited."
            )
        return state

    def ref(self, room_id: RoomId, ref_id: RefId) -> dict[str, Any]:
        """Return a ref of a room that the caller may read, as it counts and without contents.

        Raises:
            SubletError: ``NOT_FOUND``.
        """
        self.state(room_id)
        ref = self.engine.reading.ref_in(room_id, ref_id)
        if ref is None:
            raise no_message(ref_id)
        return ref

    def annotate(self, ref: Mapping[str, Any], name: str, key: str, value: Any) -> None:
        """Write a key of an annotation of a ref that is a shared map; None takes it away.

        Args:
            ref: what ``ref`` has returned.
            name: the annotation, without ``ext.``.
            key: the key.
            value: what to write.

        Raises:
            SubletError: a hook refuses it; ``CONFLICT``: the room has not enabled what it belongs to.
        """
        engine, path = self.engine, (f"ext.{name}", key)
        document = engine.document(doc_id("index", room_id=ref["room_id"], shard_id=ref["shard_id"]))
        target: RefId = ref["ref_id"]
        node = document.list.by_entry.get(target)
        writes: list[tuple[RefId | None, tuple[str, ...], Any]] = [(target, path, value)]
        if node is not None and not engine.reading.is_shared(document, node.id, path[0]):
            enabled = engine.rooms.state(ref["room_id"]).enabled_extensions
            if name in engine.registry.shared_on(AnnotationPlace.ON_REF, enabled):
                writes.insert(0, (target, path[:1], Nested()))
        # Where several made the map at once the key may stand in each of them; it is taken away from all.
        times = engine.reading.held(document, node.id, path) if value is None and node is not None else 1
        for _ in range(max(1, times)):
            engine.writing.set_fields(self.entity, document.row.doc_id, writes)

    def set_field(self, doc_id: str, path: tuple[str, ...], value: Any) -> None:
        """Write a field of a map document; None takes it away.

        Raises:
            SubletError: a hook refuses it, or there is no such document.
        """
        self.engine.writing.set_field(self.entity, doc_id, None, path, value)

    def read_document(self, doc_id: str) -> dict[str, Any]:
        """Return a map document as it counts."""
        return self.engine.reading.map_document(doc_id)

    def scan_index(self, index: str, key: str, limit: int) -> list[IndexEntry]:
        """Return entries of an index, highest rank first."""
        return self.engine.store.scan_index(index, key, limit)

    def shown(
        self, room_id: RoomId, ref_ids: Iterable[RefId], query: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Return those of some refs that are in a room and count, as the caller sees them: after the hooks.

        Args:
            room_id: the room.
            ref_ids: the refs, in the order in which they are returned.
            query: which view of the room is asked for, as hooks see it (``AfterRead.query``).
        """
        found = (self.engine.reading.ref_in(room_id, ref_id) for ref_id in ref_ids)
        return self.engine.reading.shown(self.entity, room_id, [ref for ref in found if ref is not None], query)


def no_message(ref_id: RefId) -> SubletError:
    """Return the error for a message that a room does not have."""
    return SubletError(
        LocalCode.NOT_FOUND, f"no message {ref_id} in this room", "Read the room for the ids of messages."
    )

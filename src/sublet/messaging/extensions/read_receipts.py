"""EXT-08 Read receipts: how far each member has read a room, written by nobody but that member."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from sublet.messaging.builtins.timeline import backwards
from sublet.messaging.calls import people_calls as calls
from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Operation,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.ports.store import Store
from sublet.messaging.reading.reading import Reading
from sublet.messaging.schema.changes import Happened
from sublet.messaging.schema.datatypes import QOS_LOW, Annotation, AnnotationPlace, Change, Datatype, Origin
from sublet.messaging.schema.fields import Written
from sublet.messaging.writing.writing import Writing
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId, is_ref_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.shards import is_shard
from sublet.protocol.ezagent.yjs.encode import Nested
from sublet.protocol.times import rfc3339_of_ms

READ_RECEIPTS: Final = "read-receipts"
MAX_UNREAD: Final = 1_000
"""Where more is unread the count stops, and says so."""
MAX_READERS: Final = 1_000
_INDEX: Final = "unread_count"
_REF, _WINDOW, _TIME = "last_read_ref", "last_read_window", "updated_at"


class ReceiptParts(Protocol):
    """The parts of the engine for knowing what was read."""

    @property
    def now_ms(self) -> Callable[[], int]: ...

    @property
    def reading(self) -> Reading: ...

    @property
    def store(self) -> Store: ...

    @property
    def writing(self) -> Writing: ...


def read_up_to(engine: ReceiptParts, room_id: RoomId, reader: EntityId) -> RefId | None:
    """Return the last message that somebody has read, by what they say themselves."""
    position = _position(engine.reading.map_document(_document(room_id)).get(reader))
    return position[_REF] if position is not None else None


def has_read(engine: ReceiptParts, room_id: RoomId, reader: EntityId, ref_id: RefId) -> bool:
    """Tell whether somebody says that they have read a message, or one after it."""
    last = read_up_to(engine, room_id, reader)
    return last is not None and (last == ref_id or engine.reading.precedes(room_id, ref_id, last))


def _document(room_id: RoomId) -> str:
    return doc_id("ext", room_id=room_id, ext_id=READ_RECEIPTS)


def _position(value: object) -> dict[str, str] | None:
    """Return how far somebody has read; None where a value says nothing of the kind."""
    if not isinstance(value, dict):
        return None
    ref, window = value.get(_REF), value.get(_WINDOW)
    if not isinstance(ref, str) or not is_ref_id(ref) or not isinstance(window, str) or not is_shard(window):
        return None
    return {_REF: ref, _WINDOW: window, _TIME: str(value.get(_TIME, ""))}


def _auto_mark(context: AfterRead) -> None:
    """Mark a page of the room as read by whoever was shown it; a thread or a quotation is no page of it."""
    if not context.page or context.quoted or context.query or not context.items:
        return
    room_id, last = context.room_id, context.items[-1]["ref_id"]
    context.write_back(lambda later: mark_read(later, room_id, last))


def mark_read(context: OperationContext, room_id: RoomId, ref_id: RefId) -> bool:
    """Write how far the caller has read, where that is further than before; tell whether it was.

    A room that has not enabled receipts gets none.
    """
    if READ_RECEIPTS not in context.state(room_id).enabled_extensions:
        return False
    engine, reader = context.parts, context.entity
    known = engine.reading.map_document(_document(room_id)).get(reader)
    position = _position(known)
    if position is not None and not engine.reading.precedes(room_id, position[_REF], ref_id):
        return False
    ref = engine.reading.ref_in(room_id, ref_id)
    if ref is None:
        return False
    writes: list[tuple[RefId | None, tuple[str, ...], Written]] = [
        (None, (reader, _REF), ref_id),
        (None, (reader, _WINDOW), ref["shard_id"]),
        (None, (reader, _TIME), rfc3339_of_ms(engine.now_ms())),
    ]
    if not isinstance(known, dict):
        writes.insert(0, (None, (reader,), Nested()))
    engine.writing.set_fields(reader, _document(room_id), writes)
    return True


def _moves(change: Happened) -> bool:
    return change.path == (change.signer, _REF)


def _update_unread(context: AfterWrite) -> None:
    """Keep where a reader is, from where what is unread is counted."""
    change = context.change
    position = _position(context.read_document(change.doc_id).get(change.signer))
    if change.room_id is not None and position is not None:
        context.index([IndexEntry(_INDEX, change.room_id, change.signer, {**position})])


def _update(context: OperationContext, room_id: RoomId, ref_id: RefId) -> calls.Moved:
    """Say that the caller has read a room up to a message; never takes that back.

    Raises:
        SubletError: there is no such message; ``CONFLICT``: the room does not offer receipts.
    """
    ref = context.ref(room_id, ref_id)
    return {"moved": mark_read(context, room_id, ref["ref_id"])}


def _summary(context: OperationContext, room_id: RoomId) -> calls.ReadingFound:
    """Return how many messages of others the caller has not read, and how far each member has.

    ``more`` tells that there are more than ``MAX_UNREAD``.
    """
    members = context.state(room_id).members()
    engine = context.parts
    entries = engine.store.scan_index(_INDEX, room_id, MAX_READERS)
    readers = {entry.rank: entry.value for entry in entries if entry.rank in members}
    last = readers[context.entity][_REF] if context.entity in readers else None
    unread = 0
    for _, node in backwards(context, room_id, None):
        if node.entry_id == last or unread > MAX_UNREAD:
            break
        unread += node.signer != context.entity
    return {"unread": min(unread, MAX_UNREAD), "more": unread > MAX_UNREAD, "readers": readers}


RECEIPTS: Final = Declaration(
    id=READ_RECEIPTS,
    version="0.1.0",
    dependencies=("timeline", "room"),
    origin=Origin.STANDARD,
    datatypes=(
        Datatype(
            id="read_receipts",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/{room_id}/ext/read-receipts/{state|updates}",
            persistent=True,
            writer_rule="Y.Map key == signer entity_id",
            qos=QOS_LOW,
            latest_only=True,
        ),
    ),
    hooks=Hooks(
        after_read=(AfterReadHook("receipts.auto_mark", Trigger("timeline_index"), 70, _auto_mark),),
        after_write=(
            AfterWriteHook(
                "receipts.update_unread",
                Trigger("read_receipts", Change.UPDATE, "a position of the signer", _moves),
                50,
                _update_unread,
            ),
        ),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.STANDALONE_DOC,
            READ_RECEIPTS,
            "entity_id -> { last_read_ref, last_read_window, updated_at }",
            writer_rule="Y.Map key == signer entity_id",
        ),
    ),
    indexes=(
        Index(
            id=_INDEX,
            input="read_receipts + timeline_index",
            transform="room_id -> unread message count",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.get_reading.id,
            read=calls.get_reading.by(_summary),
        ),
    ),
    operations=(Operation(calls.mark_read.id, calls.mark_read.by(_update), writes="read_receipts"),),
)

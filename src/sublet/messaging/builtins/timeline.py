"""Timeline: the refs of a room in the order that all peers agree on (ezagent 4.3)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from sublet.messaging.calls import message_calls as calls
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Operation,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext, no_message
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.documents.document import Document
from sublet.messaging.documents.sequence import Node
from sublet.messaging.opening.room_order import place_of
from sublet.messaging.schema.datatypes import QOS_DATA, AnnotationPlace, Change, Datatype, Origin
from sublet.messaging.schema.fields import Fields, FieldsView, Written
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RefId, RoomId
from sublet.protocol.ezagent.order import AFTER, Place
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.yjs.encode import Nested
from sublet.protocol.times import rfc3339_of_ms

DEFAULT_LIMIT: Final = calls.DEFAULT_LIMIT
MAX_LIMIT: Final = 200
HOPS: Final = "hops"
HIGHEST_HOPS: Final = 1_000
ACTIVE: Final = "active"
DELETED: Final = "deleted_by_author"


def _generate_ref(context: PreSend) -> None:
    """Give a ref its id and its core fields, and make the shared maps in which others will annotate it."""
    given, room = dict(context.fields), context.room
    context.fields.clear()
    given.pop(AFTER, None)  # which is written once it is known what stands last
    core = {
        "ref_id": context.new_ref_id(),
        "author": context.intent.entity,
        "content_type": given.pop("content_type"),
        "content_id": given.pop("content_id"),
        "created_at": rfc3339_of_ms(context.now_ms),
        "status": ACTIVE,
        "signature": "",
    }
    context.fields.update(core | given)
    for name in context.shared_annotations(room.enabled_extensions if room is not None else ()):
        if f"ext.{name}" in given:
            raise context.refuse(
                f"a message is sent without ext.{name}, which others write", "Write it once it is sent."
            )
        context.fields[f"ext.{name}"] = Nested()


def hops_of(fields: FieldsView) -> int:
    """Return how many messages of agents a ref says that it has behind it; 0 where it says nothing that counts."""
    value = fields.get(f"ext.{HOPS}")
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= HIGHEST_HOPS else 0


def _detect_change(context: AfterWrite) -> None:
    """Tell of new, and of deleted, messages."""
    change = context.change
    if change.event is Change.INSERT:
        fields = change.fields
        context.emit(
            "message.new",
            {
                "ref_id": change.entry_id,
                "author": change.signer,
                "content_id": str(fields["content_id"]),
                "created_at": str(fields["created_at"]),
                "local": change.local,
                **({HOPS: hops} if (hops := hops_of(fields)) else {}),
            },
        )
    elif change.path == ("status",) and change.value == DELETED:
        context.said_otherwise(str(change.entry_id))
        context.emit("message.deleted", {"ref_id": change.entry_id, "author": change.signer})


def check_limit(limit: int) -> None:
    """Refuse a page of more messages than ``MAX_LIMIT``, or of none.

    Raises:
        SubletError: ``INVALID_ARGUMENT``.
    """
    if not 0 < limit <= MAX_LIMIT:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"limit is from 1 to {MAX_LIMIT}", "Ask for one page.")


def _list(
    context: OperationContext,
    room_id: RoomId,
    limit: int = DEFAULT_LIMIT,
    before: RefId | None = None,
    after: RefId | None = None,
    peek: bool = False,
) -> calls.RefPage:
    """Return a page of refs in order: the last ones, or those before or after a ref; ``peek`` marks none as read."""
    context.state(room_id)
    check_limit(limit)
    if before is not None and after is not None:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "before excludes after", "Ask for one page.")
    cursor = before or after
    place = _place_of(context, room_id, cursor) if cursor is not None else None
    walk = _forwards(context, room_id, place) if after is not None else backwards(context, room_id, place)
    found = list(islice(walk, limit + 1))
    page = found[:limit] if after is not None else found[:limit][::-1]
    items = [context.parts.reading.entry(document, node) for document, node in page]
    more = len(found) > limit
    edge = page[-1 if after is not None else 0][1].entry_id if page and more else None
    return {"refs": context.parts.shows.shown(context.entity, room_id, items, page=not peek), "next_cursor": edge}


def _get_ref(context: OperationContext, room_id: RoomId, ref_id: RefId) -> calls.Ref:
    shown: Fields = context.parts.shows.shown(context.entity, room_id, [context.ref(room_id, ref_id)])[0]
    return shown


def _place_of(context: OperationContext, room_id: RoomId, cursor: RefId) -> Place:
    found = context.parts.store.find_entry(cursor)
    if found is None or found[0].room_id != room_id:
        raise no_message(cursor)
    document = context.parts.documents.open(found[0].doc_id)
    node = document.elements.node(found[1])
    if node is None:
        raise no_message(cursor)
    return place_of(document, node)


def backwards(context: OperationContext, room_id: RoomId, before: Place | None) -> Iterator[tuple[Document, Node]]:
    """Yield the refs of a room that count, from the last, or from the one before a place, to the first."""
    for document, node in context.parts.order.backwards(room_id, before):
        if context.parts.reading.counts(document, node):
            yield document, node


def _forwards(context: OperationContext, room_id: RoomId, after: Place | None) -> Iterator[tuple[Document, Node]]:
    for document, node in context.parts.order.forwards(room_id, after):
        if context.parts.reading.counts(document, node):
            yield document, node


def _annotations(context: OperationContext, room_id: RoomId, ref_id: RefId) -> Fields:
    ref = _get_ref(context, room_id, ref_id)
    return {name: value for name, value in ref.items() if name.startswith("ext.")}


def _annotate(context: OperationContext, room_id: RoomId, ref_id: RefId, name: str, key: str, value: Written) -> None:
    _set_annotation(context, room_id, ref_id, name, key, value)


def _remove_annotation(context: OperationContext, room_id: RoomId, ref_id: RefId, name: str, key: str) -> None:
    _set_annotation(context, room_id, ref_id, name, key, None)


def _set_annotation(
    context: OperationContext, room_id: RoomId, ref_id: RefId, name: str, key: str, value: Written
) -> None:
    ref = context.ref(room_id, ref_id)
    annotation = context.parts.schema.annotations.get((AnnotationPlace.ON_REF, name))
    if annotation is None or not annotation.nested:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"ext.{name} is no map that several write", "See docs/messaging.md."
        )
    context.annotate(ref, name, key, value)


TIMELINE = Declaration(
    id="timeline",
    version="0.1.0",
    dependencies=("identity", "room"),
    origin=Origin.BUILT_IN,
    datatypes=(
        Datatype(
            id="timeline_index",
            storage_type=StorageType.CRDT_ARRAY,
            key_pattern="ezagent/{room_id}/index/{shard_id}/{state|updates}",
            persistent=True,
            writer_rule="signer ∈ room.members AND ref.author == signer",
            qos=QOS_DATA,
        ),
    ),
    hooks=Hooks(
        pre_send=(PreSendHook("timeline.generate_ref", Trigger("timeline_index", Change.INSERT), 20, _generate_ref),),
        after_write=(
            AfterWriteHook("timeline.ref_change_detect", Trigger("timeline_index", Change.ANY), 30, _detect_change),
        ),
    ),
    indexes=(
        Index(
            id="timeline_view",
            input="timeline_index of a room, all shards",
            transform="refs in the order of the CRDT, by pages",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.list_timeline.id,
            read=calls.list_timeline.by(_list),
            goes_back=True,
        ),
        Index(
            id="single_ref",
            input="timeline_index.refs[ref_id]",
            transform="ref, content and annotations",
            refresh=Refresh.ON_DEMAND,
            operation_id=calls.get_ref.id,
            read=calls.get_ref.by(_get_ref),
        ),
    ),
    operations=(
        Operation("annotation.list", _annotations),
        Operation("annotation.add", _annotate, writes="timeline_index"),
        Operation("annotation.remove", _remove_annotation, writes="timeline_index"),
    ),
    events=("message.new", "message.deleted"),
)

"""EXT-01 Mutable content: its author edits a message, and everybody can see what it said before.

An edited message names a document of its own in place of the immutable content that it was sent with. The id of that
document commits to the author, so that nobody else writes into it, whoever is first.
"""

from __future__ import annotations

import itertools
from typing import Final

from sublet.messaging.builtins.message import as_sent
from sublet.messaging.builtins.timeline import DELETED
from sublet.messaging.calls import message_calls as calls
from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    Operation,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.schema.changes import Happened
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Datatype, Origin
from sublet.messaging.schema.fields import Fields, Written
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import FORMATS, IMMUTABLE, MAX_BODY_BYTES, sign_ref
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import ContentId, EntityId, RefId, RoomId, is_own_content_id, own_content_id
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.yjs.update import Value
from sublet.protocol.times import rfc3339_of_ms

MUTABLE: Final = "mutable"
EDITED: Final = "edited"
EDITED_AT: Final = "edited_at"
REF_OF_CONTENT: Final = "ref_of_content"
MAX_VERSIONS: Final = 100
"""The last ones, which are told; the log holds them all."""


def content_document(room_id: RoomId, content_id: ContentId) -> str:
    """Return the id of the document that holds content which changes."""
    return doc_id("content", room_id=room_id, content_id=content_id)


def authored(content_id: object, room_id: RoomId, author: EntityId) -> bool:
    """Tell whether an author may call this content, which changes, their own."""
    return isinstance(content_id, str) and is_own_content_id(content_id, room_id, author)


def _validate_edit(context: PreSend) -> None:
    """Let nobody write into the content of a message who may not: its author alone, where nothing widens that."""
    if not context.counts():
        raise context.refuse("only its author edits a message", "Answer it.", LocalCode.POLICY_DENIED)


def _is_newer(change: Happened) -> bool:
    return change.path == (EDITED_AT,)


def _update_status(context: AfterWrite) -> None:
    """Say in a message that its author has edited the content that it names; the first edit says so as it names it."""
    change, place = context.change, parse_doc_id(context.change.doc_id)
    room_id, content_id = place.room_id, place.content_id
    if not change.local or room_id is None or content_id is None or not authored(content_id, room_id, change.signer):
        return
    for entry in context.scan_index(REF_OF_CONTENT, content_id, 1):
        ref = context.read_ref(entry.rank)
        if ref is not None and ref["content_id"] == content_id and ref["author"] == change.signer:
            document = doc_id("index", room_id=room_id, shard_id=ref["shard_id"])
            context.write_field(document, entry.rank, ("status",), EDITED)


def is_edit(change: Happened) -> bool:
    """Tell whether a change says of a message that its author has edited it."""
    return change.path == ("status",) and change.value == EDITED


def _emit_edited(context: AfterWrite) -> None:
    """Tell that a message says something else now."""
    change = context.change
    ref = context.read_ref(change.entry_id) if change.entry_id is not None else None
    if ref is not None:
        context.emit(
            "message.edited",
            {"ref_id": ref["ref_id"], "author": change.signer, "content_id": ref["content_id"], "local": change.local},
        )


def _names_other(change: Happened) -> bool:
    return change.path == ("content_id",)


def _remember(context: AfterWrite) -> None:
    """Keep which message a content belongs to, and have that asked for where it is not here."""
    change = context.change
    ref = context.read_ref(change.entry_id) if change.entry_id is not None else None
    if ref is not None and authored(ref["content_id"], ref["room_id"], ref["author"]):
        context.index([IndexEntry(REF_OF_CONTENT, ref["content_id"], ref["ref_id"], {})])
        context.said_otherwise(ref["ref_id"])
        context.want(content_document(ref["room_id"], ref["content_id"]))


def _said_otherwise(context: AfterWrite) -> None:
    """Have the message found by other words whose content has changed."""
    content_id = parse_doc_id(context.change.doc_id).content_id
    for entry in context.scan_index(REF_OF_CONTENT, content_id, 1) if content_id is not None else ():
        context.said_otherwise(entry.rank)


def _resolve(context: AfterRead) -> None:
    """Add the bodies to refs whose content changes; where a content has not come yet the ref says so."""
    for ref in context.items:
        if ref.get("content_type") == IMMUTABLE or ref.get("status") == DELETED:
            continue
        content_id = ref.get("content_id")
        if not authored(content_id, context.room_id, ref["author"]):
            continue
        name = content_document(context.room_id, str(content_id))
        fields, body = context.read_document(name), _text(context, name)
        is_here = bool(fields) and body is not None
        ref["content"] = (
            {**fields, "content_id": content_id, "author": ref["author"], "body": body} if is_here else None
        )
        ref["body"] = body if is_here else None


def _text(context: AfterRead, name: str) -> str | None:
    """Return a text; None where it can't be read, which takes nothing from the other messages of a page."""
    try:
        return context.text(name)
    except SubletError:
        return None


def _update(
    context: OperationContext, room_id: RoomId, ref_id: RefId, body: str, format: str | None = None
) -> calls.Edited:
    """Let a message say something else.

    Args:
        context: who asks, who has to be its author.
        room_id: the room.
        ref_id: the message.
        body: what it says from now on.
        format: one of ``FORMATS``; None leaves it.

    Raises:
        SubletError: ``POLICY_DENIED``: it is another's; ``CONFLICT``: it was deleted, or the room does not offer this;
            ``INVALID_ARGUMENT``: the body or the format.
    """
    ref = context.ref(room_id, ref_id)
    own = ref["author"] == context.entity
    if not own and not _is_shared_with(context, ref):
        raise SubletError(LocalCode.POLICY_DENIED, "only its author edits this message", "Answer it.")
    context.refuse_purged(room_id, ref_id)
    if ref["status"] == DELETED:
        raise SubletError(LocalCode.CONFLICT, "this message was deleted", "Send another one.")
    if not body or len(body.encode("utf-8", "surrogatepass")) > MAX_BODY_BYTES or format not in (None, *FORMATS):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"a message has from 1 to {MAX_BODY_BYTES} bytes, and a known format",
            f"Formats: {', '.join(FORMATS)}.",
        )
    first = ref["content_type"] == IMMUTABLE
    content_id = _new_id(context, room_id) if first else str(ref["content_id"])
    _write(context, ref, content_document(room_id, content_id), body, format if own else None)
    if first:
        name_content(context, ref, content_id, MUTABLE, edited=True)
    return {"ref_id": ref_id, "room_id": room_id, "content_id": content_id}


def _is_shared_with(context: OperationContext, ref: Fields) -> bool:
    room_id, content_id = ref["room_id"], ref["content_id"]
    if not authored(content_id, room_id, ref["author"]):
        return False
    return context.parts.texts.may(context.entity, content_document(room_id, content_id))


def _new_id(context: OperationContext, room_id: RoomId) -> ContentId:
    """Return an id for the content of a message of ours that changes for the first time.

    Numbers go on from one to the next and come again after 4,096, so one is rarely taken; then a later time is told.
    """
    engine, number = context.parts, next(context.parts.content_numbers)
    for at_ms in itertools.count(engine.now_ms()):
        content_id = own_content_id(at_ms, room_id, context.entity, number)
        if engine.store.find_document(content_document(room_id, content_id)) is None:
            return content_id
    raise AssertionError("a count that has no end")


def _write(context: OperationContext, ref: Fields, name: str, body: str, format: str | None) -> None:
    engine = context.parts
    marks: dict[str, Value] = {EDITED_AT: rfc3339_of_ms(engine.now_ms())}
    if format is not None:
        marks["format"] = format
    if ref["content_type"] == IMMUTABLE:
        sent = as_sent(engine.reading, ref)
        there = sent or {"body": "", "format": FORMATS[0], "media_refs": []}
        founding: dict[str, Value] = {
            "type": MUTABLE,
            "author": ref["author"],
            "format": str(there["format"]),
            "media_refs": there["media_refs"],  # type: ignore[dict-item]  # a list of hashes, as it was sent
            "original": str(ref["content_id"]),
        }
        marks = founding | marks
    try:
        engine.texts.replace(context.entity, name, body, marks)
    except (Refused, ValueError) as error:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"this can't be written: {error}", "Is it Unicode?") from None


def found_content(context: OperationContext, ref: Fields, body: str) -> ContentId:
    """Make content that changes out of what a message of the caller says, and return its id; the ref comes next."""
    content_id = _new_id(context, ref["room_id"])
    _write(context, ref, content_document(ref["room_id"], content_id), body, None)
    return content_id


def name_content(
    context: OperationContext, ref: Fields, content_id: ContentId, content_type: str, *, edited: bool
) -> None:
    """Write into a ref what content it names now, with a new signature, and that it was edited; in one update."""
    engine, room_id, ref_id = context.parts, ref["room_id"], ref["ref_id"]
    document = doc_id("index", room_id=room_id, shard_id=ref["shard_id"])
    writes: list[tuple[RefId | None, tuple[str, ...], Written]] = []
    if ref["content_id"] != content_id or ref["content_type"] != content_type:
        named = {**ref, "content_id": content_id, "content_type": content_type}
        writes = [
            (ref_id, ("content_type",), content_type),
            (ref_id, ("content_id",), content_id),
            (ref_id, ("signature",), sign_ref(room_id, named, engine.keyring.key(context.entity))),
        ]
    if edited:
        writes.append((ref_id, ("status",), EDITED))
    engine.writing.set_fields(context.entity, document, writes)


def _versions(context: OperationContext, room_id: RoomId, ref_id: RefId) -> list[calls.VersionFound]:
    """Return what a message has said, the first version first; of many the last ``MAX_VERSIONS``.

    Raises:
        SubletError: there is no such message, or nobody may read it any more.
    """
    engine = context.parts
    ref = engine.shows.shown(context.entity, room_id, [context.ref(room_id, ref_id)])[0]
    if ref["status"] == DELETED or ref.get("body") is None:
        raise SubletError(LocalCode.NOT_FOUND, "this message has no text any more", "It was deleted or taken down.")
    found: list[calls.VersionFound] = []
    original = str((ref.get("content") or {}).get("original", ref["content_id"]))
    sent = as_sent(engine.reading, {**ref, "content_id": original})
    if sent is not None:
        found.append({"body_snapshot": str(sent["body"]), "edited_at": ref["created_at"]})
    if authored(ref["content_id"], room_id, ref["author"]):
        for marks, text in engine.texts.steps(content_document(room_id, ref["content_id"])):
            found.append({"body_snapshot": text, "edited_at": marks.get(EDITED_AT)})
    return found[-MAX_VERSIONS:]


MUTABLES: Final = Declaration(
    id=MUTABLE,
    version="0.1.0",
    dependencies=("message",),
    origin=Origin.STANDARD,
    datatypes=(
        Datatype(
            id="mutable_content",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/{room_id}/content/{content_id}/{state|updates}",
            persistent=True,
            writer_rule="signer ∈ room.members AND signer == content.author",
        ),
    ),
    hooks=Hooks(
        pre_send=(PreSendHook("mutable.validate_edit", Trigger("mutable_content", Change.UPDATE), 25, _validate_edit),),
        after_write=(
            AfterWriteHook(
                "mutable.remember",
                Trigger("timeline_index", Change.UPDATE, "content_id", _names_other),
                35,
                _remember,
            ),
            AfterWriteHook(
                "mutable.said_otherwise",
                Trigger("mutable_content", Change.UPDATE, "an edit", _is_newer),
                30,
                _said_otherwise,
            ),
            AfterWriteHook(
                "mutable.status_update",
                Trigger("mutable_content", Change.UPDATE, "an edit", _is_newer),
                35,
                _update_status,
                writes=True,
            ),
            AfterWriteHook(
                "mutable.emit_edited",
                Trigger("timeline_index", Change.UPDATE, "status == edited", is_edit),
                40,
                _emit_edited,
            ),
        ),
        after_read=(AfterReadHook("mutable.resolve_content", Trigger("timeline_index"), 41, _resolve),),
    ),
    annotations=(
        Annotation(AnnotationPlace.STANDALONE_DOC, MUTABLE, "content_type mutable; status edited; from immutable"),
    ),
    indexes=(
        Index(
            id=REF_OF_CONTENT,
            input="timeline_index",
            transform="content_id -> ref_id",
            refresh=Refresh.ON_CHANGE,
        ),
        Index(
            id="version_history",
            input="the log of mutable_content",
            transform="ref_id -> list of {body_snapshot, edited_at}",
            refresh=Refresh.ON_DEMAND,
            operation_id=calls.list_versions.id,
            read=calls.list_versions.by(_versions),
        ),
    ),
    operations=(Operation(calls.edit.id, calls.edit.by(_update), writes="mutable_content"),),
    events=("message.edited",),
)

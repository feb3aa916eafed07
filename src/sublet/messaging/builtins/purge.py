"""Purge: a message, or its files, removed from every member for good, by its author or an owner of the room.

Deleting and taking down say that something is not to be shown, and it stays in every member's store. Purging takes it
out of there: what is left of a message is its place, its author and that it is gone. ``messaging.purging`` does that.
"""

from __future__ import annotations

from typing import Final

from sublet.messaging.calls import message_calls as calls
from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hooks,
    Operation,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.ports.purge_store import Kind, PurgedRow
from sublet.messaging.purging.named import MEDIA, named_by
from sublet.messaging.quotas.quotas import MAX_TOMBSTONES_OF_DAEMON
from sublet.messaging.reading.candidates import Candidate
from sublet.messaging.schema.changes import Happened
from sublet.messaging.schema.datatypes import Change, Datatype, Origin
from sublet.messaging.schema.fields import FieldsView
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RefId, RoomId
from sublet.protocol.ezagent.keys import doc_id, parse_doc_id
from sublet.protocol.ezagent.purge import Gone
from sublet.protocol.ezagent.room.state import ROLE_POWER, Role
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.times import rfc3339_of_ms

_KEPT: Final = ("room_id", "shard_id", "ref_id", "author", "content_type", "created_at", "status")
"""What is left of a message that is gone, beside what others made of it in its place."""
_EXTENSION: Final = "ext."
_STAYS: Final = ("ext.reply_to", "ext.thread", "ext.channels")
"""Where the message stands, which says nothing of what it said."""


def _show_gone(context: AfterRead) -> None:
    """Show what is gone as gone, whatever of it may be in the store still."""
    for number, item in enumerate(context.items):
        gone = context.purged(item["ref_id"])
        if gone is None:
            continue
        context.items[number] = view = _view(item, gone)
        view["purged"] = {"what": str(gone.what), "by": gone.by, "at": gone.at}


def _view(item: FieldsView, gone: PurgedRow) -> dict[str, object]:
    if gone.what is Gone.FILES:
        return {name: value for name, value in item.items() if name != MEDIA}
    made = {
        name: value
        for name, value in item.items()
        if name in _STAYS or not (name.startswith(_EXTENSION) or name in ("content_id", "signature", "redacted"))
    }
    return {**made, **{name: item[name] for name in _KEPT if name in item}, "content": None, "body": None}


def _reconsider(context: AfterWrite) -> None:
    context.reconsider_purges()


def _taken_back(context: AfterWrite) -> None:
    ref_id = parse_doc_id(context.change.doc_id).ref_id
    if ref_id is not None:
        context.settle_purge(ref_id)


def _names_file(change: Happened) -> bool:
    return MEDIA in change.fields


def _note_file(context: AfterWrite) -> None:
    context.names_file(context.change.fields[MEDIA])


def _purge(context: OperationContext, room_id: RoomId, ref_id: RefId, files: bool = False) -> calls.PurgeDone:
    """Remove a message for good from every member, or the files that it came with.

    Args:
        context: who asks: its author, or an owner of the room.
        room_id: the room.
        ref_id: the message, which may be deleted or taken down.
        files: whether only its files go, and what it says stays.

    Raises:
        SubletError: ``NOT_FOUND``; ``POLICY_DENIED``: it is another's; ``CONFLICT``: it came with no file, or this
            daemon has purged as much of the room as the others take.
    """
    ref, parts = context.ref(room_id, ref_id), context.parts
    state = parts.rooms.state(room_id)
    if ref["author"] != context.entity and state.power(context.entity) < ROLE_POWER[Role.OWNER]:
        raise SubletError(
            LocalCode.POLICY_DENIED,
            "only its author or an owner of the room purges a message",
            "Ask one of them; a moderator may take it down: sublet redact ROOM MESSAGE",
        )
    named = [one.name for one in named_by(room_id, ref["author"], _files_of(ref)) if one.kind is Kind.FILE]
    if files and not named:
        raise SubletError(LocalCode.CONFLICT, "this message came with no file", "Without --file all of it is purged.")
    what = Gone.FILES if files else Gone.MESSAGE
    gone = context.purged(room_id, ref_id)
    changed = gone is None or (gone.what is Gone.FILES and what is Gone.MESSAGE)
    if changed:
        name = doc_id("purge", room_id=room_id, ref_id=ref_id)
        if parts.store.find_document(name) is None and _begun(context, room_id) >= MAX_TOMBSTONES_OF_DAEMON:
            raise SubletError(
                LocalCode.CONFLICT,
                f"this daemon has purged {MAX_TOMBSTONES_OF_DAEMON} messages of the room, all that others take",
                "Go on in a new room, and let the others forget this one: sublet room leave ROOM",
            )
        parts.writing.set_fields(context.entity, name, [(None, (str(what),), rfc3339_of_ms(parts.now_ms()))])
    kept = [digest for digest in named if parts.purges.others_with(room_id, ref_id, digest)]
    return {"changed": changed, "kept_files": kept}


def _files_of(ref: FieldsView) -> list[Candidate]:
    return [Candidate((0, 0), None, None, ref["author"], MEDIA, None, ref.get(MEDIA), nested=False, first=True)]


def _begun(context: OperationContext, room_id: RoomId) -> int:
    home = context.parts.keyring.home
    counts = context.parts.store.purges.begun(room_id)
    return sum(count for signer, count in counts.items() if home(signer) == home(context.entity))


PURGE = Declaration(
    id="purge",
    version="0.1.0",
    dependencies=("message", "room"),
    origin=Origin.BUILT_IN,
    datatypes=(
        Datatype(
            id="tombstone",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/{room_id}/ext/purge/{ref_id}/{state|updates}",
            persistent=True,
            writer_rule="signer ∈ room.members AND message author or owner",
        ),
    ),
    hooks=Hooks(
        after_write=(
            AfterWriteHook(
                "purge.note_file", Trigger("timeline_index", Change.INSERT, "has media", _names_file), 45, _note_file
            ),
            AfterWriteHook("purge.reconsider", Trigger("room_config", Change.UPDATE), 70, _reconsider),
            AfterWriteHook("purge.taken_back", Trigger("tombstone", Change.DELETE), 35, _taken_back),
        ),
        after_read=(AfterReadHook("purge.show_gone", Trigger("timeline_index"), 95, _show_gone),),
    ),
    operations=(Operation(calls.purge.id, calls.purge.by(_purge), writes="tombstone"),),
    events=("message.purged", "message.purge_refused"),
)

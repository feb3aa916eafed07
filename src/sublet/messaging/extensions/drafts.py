"""EXT-12 Drafts: what somebody has begun to write in a room, for nobody but that entity itself.

A draft is never published. Another device of the entity asks for it, and proves to be one.
"""

from __future__ import annotations

from typing import Final

from sublet.messaging.calls import people_calls as calls
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import AfterWriteHook, Declaration, Hooks, Operation, PreSendHook, Trigger
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Change, Datatype, Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import MAX_BODY_BYTES
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId, is_ref_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.ezagent.yjs.update import Value
from sublet.protocol.times import rfc3339_of_ms

DRAFTS: Final = "drafts"
_BODY, _REPLY_TO, _TIME = "body", "reply_to", "updated_at"


def _document(room_id: RoomId, entity: EntityId) -> str:
    return doc_id("draft", room_id=room_id, entity_id=entity)


def _is_body(intent: Intent) -> bool:
    return intent.fields.get("path") == (_BODY,)


def _auto_save(context: PreSend) -> None:
    """Let an entity keep its own draft alone, and none that could not be sent."""
    intent, body = context.intent, context.fields["value"]
    if intent.room_id is None or intent.doc_id != _document(intent.room_id, intent.entity):
        raise context.refuse("a draft is kept by whoever writes it")
    if body is not None and (not isinstance(body, str) or len(body.encode("utf-8", "surrogatepass")) > MAX_BODY_BYTES):
        raise context.refuse(f"a message has at most {MAX_BODY_BYTES} bytes", "Attach what is longer.")


def _made_here(change: Happened) -> bool:
    return change.local


def _clear_on_send(context: AfterWrite) -> None:
    """Take the draft away once a message of its writer is sent."""
    change = context.change
    if change.room_id is None:
        return
    name = _document(change.room_id, change.signer)
    for key in context.read_document(name):
        context.write_field(name, None, (key,), None)


def _save(context: OperationContext, room_id: RoomId, body: str, reply_to: RefId | None = None) -> calls.DraftFound:
    """Keep what the caller has begun to write; an empty body takes the draft away.

    Raises:
        SubletError: ``NOT_FOUND``; ``CONFLICT``: the room does not offer this; ``INVALID_ARGUMENT``: it is too long, or
            it answers no message.
    """
    engine, entity = context.parts, context.entity
    if reply_to is not None and not is_ref_id(reply_to):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no message to answer", "Read the room for their ids.")
    there = engine.reading.map_document(_document(room_id, entity))
    wanted: dict[str, Value] = {_BODY: body or None, _REPLY_TO: reply_to if body else None}
    wanted[_TIME] = rfc3339_of_ms(engine.now_ms()) if body else None
    writes = [(None, (key,), value) for key, value in wanted.items() if there.get(key) != value]
    if any(key[0] != _TIME for _, key, _ in writes):
        engine.writing.set_fields(entity, _document(room_id, entity), writes)
    return _view({key: value for key, value in wanted.items() if value is not None})


def _load(context: OperationContext, room_id: RoomId) -> calls.DraftFound:
    """Return what the caller has begun to write in a room; ``body`` is empty where that is nothing."""
    context.state(room_id)
    return _view(context.parts.reading.map_document(_document(room_id, context.entity)))


def _view(found: Fields) -> calls.DraftFound:
    return {"body": found.get(_BODY, ""), "reply_to": found.get(_REPLY_TO), "updated_at": found.get(_TIME)}


USER_DRAFTS: Final = Declaration(
    id=DRAFTS,
    version="0.1.0",
    dependencies=("room", "timeline"),
    origin=Origin.STANDARD,
    datatypes=(
        Datatype(
            id="user_draft",
            storage_type=StorageType.CRDT_MAP,
            key_pattern="ezagent/{room_id}/ext/draft/{entity_id}/{state|updates}",
            persistent=True,
            writer_rule="signer == entity_id in doc_id",
            latest_only=True,
            private=True,
        ),
    ),
    hooks=Hooks(
        pre_send=(
            PreSendHook("drafts.auto_save", Trigger("user_draft", Change.UPDATE, None, _is_body), 50, _auto_save),
        ),
        after_write=(
            AfterWriteHook(
                "drafts.clear_on_send",
                Trigger("timeline_index", Change.INSERT, "sent here", _made_here),
                90,
                _clear_on_send,
                writes=True,
            ),
        ),
    ),
    operations=(
        Operation(calls.save_draft.id, calls.save_draft.by(_save), writes="user_draft"),
        Operation(calls.load_draft.id, calls.load_draft.by(_load)),
    ),
)

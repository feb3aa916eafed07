"""Message: immutable contents, found by the hash that their ref names (ezagent 4.4)."""

from __future__ import annotations

from sublet.messaging.builtins.timeline import DELETED
from sublet.messaging.calls import message_calls as calls
from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
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
from sublet.messaging.reading.reading import Reading
from sublet.messaging.schema.changes import Intent
from sublet.messaging.schema.datatypes import AnnotationPlace, Change, Datatype, Origin
from sublet.messaging.schema.fields import Fields, FieldsView
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import (
    FORMATS,
    IMMUTABLE,
    MAX_BODY_BYTES,
    MAX_MEDIA_REFS,
    canonical,
    content_object,
    sign_content,
)
from sublet.protocol.ezagent.ids import RefId, RoomId
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.times import rfc3339_of_ms


def _hash_content(context: PreSend) -> None:
    """Name a content by the hash of its canonical form, and sign it."""
    signed = sign_content(context.fields, context.author_key())
    context.fields.update(signed)
    context.attach_content(str(signed["content_id"]), canonical(signed))


def _validate_ref(context: PreSend) -> None:
    if not context.has_content(str(context.fields["content_id"])):
        raise context.refuse("a message whose content is not here", "Send the content first.")


def _is_immutable(intent: Intent) -> bool:
    return intent.fields.get("content_type") == IMMUTABLE


def as_sent(reading: Reading, ref: FieldsView) -> dict[str, JsonValue] | None:
    """Return the immutable content that a ref names; None where it has not come, or is in another's name."""
    content = reading.content_of(ref)
    return content if content is not None and content["author"] == ref["author"] else None


def _resolve_content(context: AfterRead) -> None:
    """Add the bodies to refs. Where a content has not come yet the ref says so."""
    for ref in context.items:
        if ref.get("content_type") != IMMUTABLE or ref.get("status") == DELETED:
            continue
        content = context.content_of(ref)
        fits = content is not None and content["author"] == ref["author"]
        ref["content"] = content if fits else None
        ref["body"] = content["body"] if content is not None and fits else None


def _send(
    context: OperationContext,
    room_id: RoomId,
    body: str,
    format: str = "text/plain",
    media_refs: list[str] | None = None,
    ext: Fields | None = None,
) -> calls.RefSent:
    """Send a message.

    Args:
        context: who asks.
        room_id: a room that the sender is a member of.
        body: at most ``MAX_BODY_BYTES`` in UTF-8.
        format: one of ``FORMATS``.
        media_refs: hashes of attachments.
        ext: what extensions put onto the ref, by name without ``ext.``.

    Raises:
        SubletError: the body is empty or too long, the format unknown, or a hook refuses it.
    """
    media = media_refs or []
    if not body or len(body.encode("utf-8", "surrogatepass")) > MAX_BODY_BYTES:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"a message has from 1 to {MAX_BODY_BYTES} bytes", "Attach what is longer."
        )
    if format not in FORMATS or len(media) > MAX_MEDIA_REFS:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "an unknown format, or too many attachments", f"Formats: {', '.join(FORMATS)}."
        )
    engine = context.parts
    for name, value in (ext or {}).items():
        extension = engine.schema.extension_of(AnnotationPlace.ON_REF, name)
        if value is not None and extension is not None:
            context.require_enabled(room_id, extension)
    contents: dict[str, bytes] = {}
    try:
        content = content_object(context.entity, body, format, rfc3339_of_ms(engine.now_ms()), media)
        intent = Intent("immutable_content", Change.INSERT, "", room_id, context.entity, dict(content))
        engine.hooks.pre_send(intent, contents)
    except ValueError as error:
        raise SubletError(LocalCode.INVALID_ARGUMENT, f"a message that has no canonical form: {error}") from None
    fields = {"content_type": IMMUTABLE, "content_id": intent.fields["content_id"]}
    fields |= {f"ext.{name}": value for name, value in (ext or {}).items() if value is not None}
    ref = engine.writing.append(context.entity, engine.shards.for_new_ref(room_id), fields, contents)
    return {"ref_id": ref["ref_id"], "room_id": room_id, "created_at": ref["created_at"]}


def _delete(context: OperationContext, room_id: RoomId, ref_id: RefId) -> calls.Deleted:
    """Delete a message of the caller; tell whether it was there until now."""
    context.state(room_id)
    ref = context.parts.reading.ref(ref_id)
    if ref is None or ref["room_id"] != room_id:
        raise SubletError(LocalCode.NOT_FOUND, f"no message {ref_id} in this room", "Read the room for its ids.")
    if ref["author"] != context.entity:
        raise SubletError(LocalCode.POLICY_DENIED, "only its author deletes a message", "An admin may redact it.")
    found = context.parts.store.find_entry(ref_id)
    if found is None or ref["status"] == DELETED:
        return {"deleted": False}
    context.parts.writing.set_field(context.entity, found[0].doc_id, ref_id, ("status",), DELETED)
    return {"deleted": True}


MESSAGE = Declaration(
    id="message",
    version="0.1.0",
    dependencies=("identity", "timeline"),
    origin=Origin.BUILT_IN,
    datatypes=(
        Datatype(
            id="immutable_content",
            storage_type=StorageType.BLOB,
            key_pattern="ezagent/{room_id}/content/{sha256_hash}",
            persistent=True,
            writer_rule="signer == author, one-time write",
        ),
    ),
    hooks=Hooks(
        pre_send=(
            PreSendHook("message.compute_content_hash", Trigger("immutable_content", Change.INSERT), 20, _hash_content),
            PreSendHook(
                "message.validate_content_ref",
                Trigger("timeline_index", Change.INSERT, "content_type == immutable", _is_immutable),
                25,
                _validate_ref,
            ),
        ),
        after_read=(AfterReadHook("message.resolve_content", Trigger("timeline_index"), 40, _resolve_content),),
    ),
    indexes=(
        Index(
            id="content_lookup",
            input="content by hash",
            transform="content_id -> content",
            refresh=Refresh.ON_DEMAND,
        ),
    ),
    operations=(
        Operation(calls.send.id, calls.send.by(_send), writes="timeline_index"),
        Operation(calls.delete.id, calls.delete.by(_delete), writes="timeline_index"),
    ),
)

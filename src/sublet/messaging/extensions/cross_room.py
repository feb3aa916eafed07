"""EXT-05 Cross-Room References: replies to messages of other rooms, shown to those who are in both."""

from __future__ import annotations

from typing import Final

from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    Declaration,
    Hooks,
    Index,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.extensions.reply_to import CROSS_ROOM, reply_target
from sublet.messaging.schema.changes import Intent
from sublet.messaging.schema.datatypes import Change, Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.errors import LocalCode
from sublet.protocol.ezagent.ids import RefId, RoomId, is_ref_id, is_room_id
from sublet.protocol.ezagent.shards import month
from sublet.protocol.times import told_time

MAX_PREVIEW_CHARS: Final = 200


def _to_another_room(intent: Intent) -> bool:
    target = reply_target(intent.fields)
    return target is not None and target.room_id is not None


def _inject(context: PreSend) -> None:
    """Write where the answered message is: its room and its month. Only who is in that room may point there."""
    target = reply_target(context.fields)
    if target is None or target.room_id is None:
        return
    ref = context.read_ref(target.room_id, target.ref_id)
    if ref is None:
        raise context.refuse(
            "no such message in a room that you are a member of", "Read that room first.", LocalCode.NOT_FOUND
        )
    context.annotate("reply_to", {"ref_id": target.ref_id, "room_id": target.room_id, "window": month(ref["shard_id"])})


def _resolve(context: AfterRead) -> None:
    """Add to a reply what it answers in another room; to who is not in that room only that there is something."""
    if context.quoted:
        return
    for ref in context.items:
        target = reply_target(ref)
        if target is not None and target.room_id not in (None, context.room_id):
            shown = context.quote(str(target.room_id), target.ref_id)
            ref["reply_preview"] = _preview(shown)


def _read(context: OperationContext, room_id: RoomId, ref_id: RefId) -> Fields:
    """Return a short form of a message of any room.

    Args:
        context: who asks.
        room_id: the room of the message.
        ref_id: the message.

    Returns:
        ``{"accessible": False}`` alone where the caller is no member, or where there is no such room or message; which
        of these it is can't be told from the answer.
    """
    if not is_room_id(room_id) or not is_ref_id(ref_id):
        return _preview(None)
    return _preview(context.parts.shows.quoted(context.entity, room_id, ref_id))


def _preview(ref: Fields | None) -> Fields:
    if ref is None:
        return {"accessible": False}
    body = ref.get("body")
    return {
        "accessible": True,
        "room_id": ref["room_id"],
        "ref_id": ref["ref_id"],
        "author": ref["author"],
        "created_at": told_time(ref["created_at"]),
        "status": ref["status"],
        "body": body[:MAX_PREVIEW_CHARS] if isinstance(body, str) else None,
        "cut": isinstance(body, str) and len(body) > MAX_PREVIEW_CHARS,
    }


# Its annotation is that of reply-to, which it fills in further: one namespace has one owner.
CROSS_ROOM_REF = Declaration(
    id=CROSS_ROOM,
    version="0.1.0",
    dependencies=("reply-to", "room"),
    origin=Origin.STANDARD,
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "cross_room.inject",
                Trigger("timeline_index", Change.INSERT, "reply_to.room_id != null", _to_another_room),
                31,
                _inject,
            ),
        ),
        after_read=(AfterReadHook("cross_room.resolve_preview", Trigger("timeline_index"), 45, _resolve),),
    ),
    indexes=(
        Index(
            id="cross_room_preview",
            input="the target room's timeline ref",
            transform="ref_id -> preview, for members",
            refresh=Refresh.ON_DEMAND,
            operation_id="crossroom.preview",
            read=_read,
        ),
    ),
)

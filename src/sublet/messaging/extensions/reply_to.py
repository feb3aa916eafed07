"""EXT-04 Reply To: which message a message answers, signed by whoever answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Declaration,
    Hooks,
    Index,
    PreSendHook,
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Origin
from sublet.messaging.schema.fields import FieldsView
from sublet.protocol.errors import LocalCode
from sublet.protocol.ezagent.ids import RefId, RoomId, is_ref_id, is_room_id
from sublet.protocol.ezagent.order import rank_text

REPLY_TO_FIELD: Final = "ext.reply_to"
CROSS_ROOM: Final = "cross-room-ref"
"""The extension that lets a reply be to a message of another room."""
MAX_REPLIES_SHOWN: Final = 20
"""Replies that are listed with a message, the last ones."""
_INDEX: Final = "reply_chain"


@dataclass(frozen=True, slots=True)
class ReplyTarget:
    """What a message answers. ``room_id`` is None for a message of the same room."""

    ref_id: RefId
    room_id: RoomId | None = None


def reply_target(fields: FieldsView) -> ReplyTarget | None:
    """Return what a ref answers; None where it answers nothing, or what stands there is none."""
    value = fields.get(REPLY_TO_FIELD)
    if not isinstance(value, dict):
        return None
    ref_id, room_id = value.get("ref_id"), value.get("room_id")
    if not isinstance(ref_id, str) or not is_ref_id(ref_id):
        return None
    if room_id is None:
        return ReplyTarget(ref_id)
    return ReplyTarget(ref_id, room_id) if isinstance(room_id, str) and is_room_id(room_id) else None


def replies_to_something(subject: Intent | Happened) -> bool:
    """Tell whether a ref that is sent, or was, answers another."""
    return REPLY_TO_FIELD in subject.fields


def _inject(context: PreSend) -> None:
    """Write what is answered in its one form; the id alone will do. A message of the same room has to be here."""
    given = context.fields[REPLY_TO_FIELD]
    context.fields[REPLY_TO_FIELD] = {"ref_id": given} if isinstance(given, str) else given
    target, here = reply_target(context.fields), context.intent.room_id
    if target is None or here is None:
        raise context.refuse("a reply names the id of a message", "Read the room for the ids of messages.")
    if target.room_id is not None and target.room_id != here:
        if context.room is None or CROSS_ROOM not in context.room.enabled_extensions:
            raise context.refuse(
                "this room has no replies to messages of other rooms", f"An admin may enable {CROSS_ROOM}."
            )
        return
    if context.read_ref(here, target.ref_id) is None:
        raise context.refuse(
            f"no message {target.ref_id} in this room", "Read the room for the ids of messages.", LocalCode.NOT_FOUND
        )
    context.annotate("reply_to", {"ref_id": target.ref_id})


def _remember(context: AfterWrite) -> None:
    change, target = context.change, reply_target(context.change.fields)
    if target is not None and target.room_id in (None, change.room_id):
        key = f"{change.room_id}/{target.ref_id}"
        context.index([IndexEntry(_INDEX, key, f"{rank_text(context.rank())}/{change.entry_id}", {})])


def _show_replies(context: AfterRead) -> None:
    """List with each message the replies to it, the last ones, in the order of the room."""
    if context.quoted:
        return
    found = {
        ref["ref_id"]: [
            entry.rank.rpartition("/")[2]
            for entry in context.scan_index(_INDEX, f"{context.room_id}/{ref['ref_id']}", MAX_REPLIES_SHOWN)
        ]
        for ref in context.items
    }
    counting = context.counting({reply for replies in found.values() for reply in replies})
    for ref in context.items:
        replies = [reply for reply in reversed(found[ref["ref_id"]]) if reply in counting]
        if replies:
            ref["replies"] = replies


def _has_reply(intent: Intent) -> bool:
    return intent.fields.get(REPLY_TO_FIELD) is not None


REPLY_TO = Declaration(
    id="reply-to",
    version="0.1.0",
    dependencies=("timeline",),
    origin=Origin.STANDARD,
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "reply_to.inject",
                Trigger("timeline_index", Change.INSERT, "has reply_to", _has_reply),
                30,
                _inject,
            ),
        ),
        # What the specification computes on demand would walk the whole room; these two keep it at hand.
        after_write=(
            AfterWriteHook(
                "reply_to.remember",
                Trigger("timeline_index", Change.INSERT, "ext.reply_to present", replies_to_something),
                40,
                _remember,
            ),
        ),
        after_read=(AfterReadHook("reply_to.show_replies", Trigger("timeline_index"), 45, _show_replies),),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.ON_REF, "reply_to", "{ ref_id: ulid, room_id?, window? }", "message author", signed=True
        ),
    ),
    indexes=(
        Index(
            id=_INDEX,
            input="timeline refs where ext.reply_to.ref_id == target",
            transform="ref_id -> replies",
            refresh=Refresh.ON_DEMAND,
        ),
    ),
)

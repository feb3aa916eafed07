"""EXT-07 Moderation: what moderators decide lies over the messages, which themselves stay as they were written."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

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
    Refresh,
    Trigger,
)
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.extensions.moderation_index import (
    LIFTING,
    MODERATION,
    SIGNED_AS,
    added,
    find,
    holding,
    made_anew,
    overlay,
    rank_of,
    target_of,
)
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Datatype, Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import sign_content
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId, is_entity_id, ref_id
from sublet.protocol.ezagent.roots import StorageType
from sublet.protocol.times import rfc3339_of_ms

MAX_REASON_CHARS: Final = 500
_KEPT: Final = ("room_id", "shard_id", "ref_id", "author", "content_type", "created_at", "status")
"""What is left of a redacted message for who is no moderator."""


def _emit(context: AfterWrite) -> None:
    fields = context.change.fields
    if target_of(fields) is None or not context.element_counts():
        return
    named = {name: fields[name] for name in ("target_ref", "target_user") if isinstance(fields.get(name), str)}
    if "target_ref" in named:
        context.said_otherwise(named["target_ref"])
    context.emit("moderation.action", {"action": fields["action"], "by": context.change.signer, **named})


def _merge(context: AfterRead) -> None:
    """Lay the decisions over messages; of two on the same the one that is later in the array holds."""
    moderates = context.room.power(context.reader) >= context.room.level(MODERATION).value
    banned: dict[str, bool] = {}
    shown: list[Fields] = []
    for item in context.items:
        view, ref, author = dict(item), item["ref_id"], item["author"]
        decision = find(context, context.room_id, rank_of("redact", ref))
        if decision is not None:
            view = {name: item[name] for name in (item if moderates else _KEPT) if name in item}
            view["redacted"] = {"by": decision["by"], "reason": decision["reason"]}
        if _holds(context, "pin", ref):
            view["pinned"] = True
        if author not in banned:
            banned[author] = _holds(context, "ban", author)
        if banned[author]:
            view["author_banned"] = True
        shown.append(view)
    context.items = shown


def _holds(context: AfterRead, group: str, target: str) -> bool:
    decision = find(context, context.room_id, rank_of(group, target))
    return decision is not None and decision["action"] in ("pin", "ban_user")


def _on_message(action: str) -> Callable[[OperationContext, RoomId, RefId, str], calls.Decided]:
    def decide(context: OperationContext, room_id: RoomId, ref_id: RefId, reason: str = "") -> calls.Decided:
        _check(context, room_id, reason)
        ref = context.ref(room_id, ref_id)
        return _write(context, room_id, {"action": action, "target_ref": ref["ref_id"]}, reason)

    return decide


def _on_entity(action: str) -> Callable[[OperationContext, RoomId, EntityId, str], calls.Decided]:
    def decide(context: OperationContext, room_id: RoomId, entity: EntityId, reason: str = "") -> calls.Decided:
        _check(context, room_id, reason)
        if not is_entity_id(entity):
            raise SubletError(LocalCode.INVALID_ARGUMENT, "no id of an entity", "See: sublet room show ROOM")
        return _write(context, room_id, {"action": action, "target_user": entity}, reason)

    return decide


def _check(context: OperationContext, room_id: RoomId, reason: str) -> None:
    """Let only those decide who have the power.

    Raises:
        SubletError: ``POLICY_DENIED``; or the reason is over ``MAX_REASON_CHARS`` characters.
    """
    state = context.state(room_id)
    if state.power(context.entity) < state.level(MODERATION).value:
        raise SubletError(LocalCode.POLICY_DENIED, "this takes the power of a moderator", "Ask an admin of the room.")
    if len(reason) > MAX_REASON_CHARS:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"a reason of over {MAX_REASON_CHARS} characters", "Say it in fewer words."
        )


def _write(context: OperationContext, room_id: RoomId, decision: dict[str, str], reason: str) -> calls.Decided:
    """Decide, unless it is decided so already; return the decision that holds, and whether it is a new one."""
    held = holding(context, room_id, decision)
    if held is None and decision["action"] in LIFTING:
        return {"action_id": None, "changed": False}
    if held is not None and (held["action"], held["reason"]) == (decision["action"], reason):
        return {"action_id": str(held["action_id"]), "changed": False}
    engine = context.parts
    now = engine.now_ms()
    fields = {
        "action_id": ref_id(now, os.urandom(10)),
        **decision,
        "by": context.entity,
        "reason": reason,
        "timestamp": rfc3339_of_ms(now),
    }
    # All of it is signed, with its kind and room, so that it proves nothing elsewhere.
    signed = sign_content({"type": SIGNED_AS, "room_id": room_id, **fields}, engine.keyring.key(context.entity))
    fields["signature"] = str(signed["signature"])
    engine.writing.append(context.entity, overlay(room_id), fields)
    return {"action_id": fields["action_id"], "changed": True}


MODERATED = Declaration(
    id=MODERATION,
    version="0.1.0",
    dependencies=("timeline", "room"),
    origin=Origin.STANDARD,
    datatypes=(
        Datatype(
            id="moderation_overlay",
            storage_type=StorageType.CRDT_ARRAY,
            key_pattern="ezagent/{room_id}/ext/moderation/{state|updates}",
            persistent=True,
            writer_rule="signer.power_level >= power_levels.ext.moderation",
            entry_id="action_id",
            entry_author="by",
        ),
    ),
    hooks=Hooks(
        after_write=(
            AfterWriteHook("moderation.index", Trigger("moderation_overlay", Change.INSERT), 35, added),
            AfterWriteHook("moderation.emit_action", Trigger("moderation_overlay", Change.INSERT), 40, _emit),
            AfterWriteHook("moderation.reindex", Trigger("moderation_overlay", Change.DELETE), 35, made_anew),
            AfterWriteHook("moderation.recount", Trigger("room_config", Change.UPDATE), 60, made_anew),
        ),
        after_read=(AfterReadHook("moderation.merge_overlay", Trigger("timeline_index"), 60, _merge),),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.ON_ROOM_CONFIG,
            MODERATION,
            "power_level: what power decisions take, 50 unless it is set",
            writer_rule="signer.power_level >= power_levels.admin",
            nested=True,
        ),
        Annotation(
            AnnotationPlace.STANDALONE_DOC,
            MODERATION,
            "actions: action_id, action, target_ref, target_user, by, reason, timestamp, signature",
            writer_rule="signer.power_level >= power_levels.ext.moderation",
        ),
    ),
    indexes=(
        Index(
            id="moderated_timeline",
            input="timeline_index + moderation_overlay",
            transform="merge the overlay onto the timeline",
            refresh=Refresh.ON_CHANGE,
        ),
    ),
    operations=(
        Operation(calls.redact.id, _on_message("redact"), writes="moderation_overlay"),
        Operation(calls.pin.id, _on_message("pin"), writes="moderation_overlay"),
        Operation(calls.unpin.id, _on_message("unpin"), writes="moderation_overlay"),
        Operation(calls.ban.id, _on_entity("ban_user"), writes="moderation_overlay"),
        Operation(calls.unban.id, _on_entity("unban_user"), writes="moderation_overlay"),
    ),
    events=("moderation.action",),
)

"""EXT-07 Moderation: what moderators decide lies over the messages, which themselves stay as they were written."""

from __future__ import annotations

import os
from typing import Any, Final

from sublet.messaging.builtins.times import rfc3339
from sublet.messaging.engine.contexts import AfterRead, AfterWrite, OperationContext
from sublet.messaging.engine.declaration import (
    AfterReadHook,
    AfterWriteHook,
    Annotation,
    AnnotationPlace,
    Change,
    Datatype,
    Declaration,
    Hooks,
    Index,
    Operation,
    Origin,
    Refresh,
    Trigger,
)
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import sign_content
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId, ref_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.roots import StorageType

MODERATION: Final = "moderation"
ON_REF: Final = frozenset({"redact", "pin", "unpin"})
ON_USER: Final = frozenset({"ban_user", "unban_user"})
MAX_REASON_CHARS: Final = 500
_SIGNED_AS: Final = "moderation.action"
_KEPT: Final = ("room_id", "shard_id", "ref_id", "author", "content_type", "created_at", "status")
"""What is left of a redacted message for who is no moderator."""


def _emit(context: AfterWrite) -> None:
    fields = context.change.fields
    if not _is_action(fields):
        return
    named = {name: fields[name] for name in ("target_ref", "target_user") if isinstance(fields.get(name), str)}
    context.emit("moderation.action", {"action": fields["action"], "by": context.change.signer, **named})


def _merge(context: AfterRead) -> None:
    """Lay the decisions over messages; of two on the same the one that is later in the array holds."""
    redacted: dict[str, dict[str, Any]] = {}
    pinned: set[str] = set()
    banned: set[str] = set()
    for action in context.elements(doc_id("ext", room_id=context.room_id, ext_id=MODERATION)):
        if not _is_action(action):
            continue
        ref, user = str(action.get("target_ref")), str(action.get("target_user"))
        match action["action"]:
            case "redact":
                redacted[ref] = {"by": action["by"], "reason": action.get("reason", "")}
            case "pin":
                pinned.add(ref)
            case "unpin":
                pinned.discard(ref)
            case "ban_user":
                banned.add(user)
            case _:
                banned.discard(user)
    moderates = context.room.power(context.reader) >= context.room.level(MODERATION).value
    shown: list[dict[str, Any]] = []
    for item in context.items:
        view = dict(item)
        decision = redacted.get(item["ref_id"])
        if decision is not None:
            view = {name: item[name] for name in (item if moderates else _KEPT) if name in item}
            view["redacted"] = decision
        if item["ref_id"] in pinned:
            view["pinned"] = True
        if item["author"] in banned:
            view["author_banned"] = True
        shown.append(view)
    context.items = shown


def _is_action(fields: Any) -> bool:
    action = fields.get("action")
    if action in ON_REF:
        return isinstance(fields.get("target_ref"), str)
    return action in ON_USER and isinstance(fields.get("target_user"), str)


def _act(
    context: OperationContext,
    room_id: RoomId,
    action: str,
    target_ref: RefId | None = None,
    target_user: EntityId | None = None,
    reason: str = "",
) -> dict[str, str]:
    """Decide on a message or on somebody.

    Args:
        context: who decides.
        room_id: the room.
        action: one of ``ON_REF`` or ``ON_USER``.
        target_ref: the message, for the former.
        target_user: the entity, for the latter.
        reason: at most ``MAX_REASON_CHARS`` characters.

    Raises:
        SubletError: ``POLICY_DENIED``: the caller has too little power; there is no such message, action or target.
    """
    state = context.state(room_id)
    if state.power(context.entity) < state.level(MODERATION).value:
        raise SubletError(LocalCode.POLICY_DENIED, "this takes the power of a moderator", "Ask an admin of the room.")
    fields = {"action": action}
    if target_ref is not None and action in ON_REF:
        fields["target_ref"] = context.ref(room_id, target_ref)["ref_id"]
    if target_user is not None and action in ON_USER:
        fields["target_user"] = target_user
    if not _is_action(fields) or len(reason) > MAX_REASON_CHARS:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            f"no such decision, none without its target, or a reason of over {MAX_REASON_CHARS} characters",
            f"Use {', '.join(sorted(ON_REF))} on a message, {' or '.join(sorted(ON_USER))} on an entity.",
        )
    engine = context.engine
    now = engine.now_ms()
    fields = {
        "action_id": ref_id(now, os.urandom(10)),
        **fields,
        "by": context.entity,
        "reason": reason,
        "timestamp": rfc3339(now),
    }
    # All of it is signed, with its kind and room, so that it proves nothing elsewhere.
    signed = sign_content({"type": _SIGNED_AS, "room_id": room_id, **fields}, engine.key(context.entity))
    fields["signature"] = str(signed["signature"])
    engine.writing.append(context.entity, doc_id("ext", room_id=room_id, ext_id=MODERATION), fields)
    return {"action_id": fields["action_id"]}


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
            AfterWriteHook("moderation.emit_action", Trigger("moderation_overlay", Change.INSERT), 40, _emit),
        ),
        after_read=(AfterReadHook("moderation.merge_overlay", Trigger("timeline_index"), 60, _merge),),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.ON_ROOM_CONFIG,
            MODERATION,
            "power_level: shown to people; what decides is power_levels, 50 unless it is set",
            writer_rule="signer.power_level >= power_levels.admin",
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
    operations=(Operation("moderation.act", _act, writes="moderation_overlay"),),
    events=("moderation.action",),
)

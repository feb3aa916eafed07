"""Which decisions of moderators hold, by what they are about: one index entry each, so that a read walks no overlay."""

from __future__ import annotations

from typing import Final

from sublet.messaging.declaring.after_read import AfterRead
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.schema.fields import Fields, FieldsView
from sublet.protocol.canonical import JsonValue
from sublet.protocol.ezagent.content import verify_content
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id

MODERATION: Final = "moderation"
SIGNED_AS: Final = "moderation.action"
GROUPS: Final = {"redact": "redact", "pin": "pin", "unpin": "pin", "ban_user": "ban", "unban_user": "ban"}
"""Of the decisions of one group on one thing, the last in the overlay holds."""
LIFTING: Final = frozenset({"unpin", "unban_user"})
"""Decisions that say nothing where nothing was decided before."""
ON_REF: Final = frozenset({"redact", "pin", "unpin"})
MAX_TARGET_CHARS: Final = 512
_INDEX: Final = "moderated_timeline"
_ALL: Final = 1 << 30


def overlay(room_id: RoomId) -> str:
    """Return the document that holds a room's decisions."""
    return doc_id("ext", room_id=room_id, ext_id=MODERATION)


def target_of(action: FieldsView) -> str | None:
    """Return what a decision is about; None where it is none."""
    kind = action.get("action")
    if kind not in GROUPS:
        return None
    target = action.get("target_ref" if kind in ON_REF else "target_user")
    return target if isinstance(target, str) and len(target) <= MAX_TARGET_CHARS else None


def added(context: AfterWrite) -> None:
    """Note a new decision that counts, unless a later one on the same is known."""
    change, room_id = context.change, str(context.change.room_id)
    entry = _entry(context, room_id, {**change.fields, "room_id": room_id})
    if entry is None or not context.element_counts():
        return
    held = find(context, room_id, entry.rank)
    if held is None or context.follows(overlay(room_id), str(entry.value["action_id"]), str(held["action_id"])):
        context.index([entry])


def made_anew(context: AfterWrite) -> None:
    """Find all that hold anew, where somebody's power or membership has changed, or updates were taken back."""
    room_id = str(context.change.room_id)
    if not _matters(context, room_id):
        return
    for known in context.scan_index(_INDEX, room_id, _ALL):
        context.unindex(_INDEX, room_id, known.rank)
    found: dict[str, IndexEntry] = {}
    for action in context.elements(overlay(room_id)):
        if (entry := _entry(context, room_id, action)) is not None:
            found[entry.rank] = entry
    context.index(found.values())


def find(context: AfterWrite | AfterRead, room_id: RoomId, rank: str) -> dict[str, JsonValue] | None:
    """Return the decision that holds, by its group and target."""
    entries = context.scan_index(_INDEX, room_id, 1, f"{rank}\0")
    return entries[0].value if entries and entries[0].rank == rank else None


def holding(context: OperationContext, room_id: RoomId, decision: dict[str, str]) -> dict[str, JsonValue] | None:
    """Return the decision that holds on what another one is about."""
    rank = rank_of(GROUPS[decision["action"]], str(target_of(decision)))
    entries = context.parts.store.scan_index(_INDEX, room_id, 1, f"{rank}\0")
    return entries[0].value if entries and entries[0].rank == rank else None


def rank_of(group: str, target: str) -> str:
    """Return where the decision of a group on something stands in the index."""
    return f"{group}:{target}"


def _matters(context: AfterWrite, room_id: RoomId) -> bool:
    before, after = context.change.before, context.change.after
    if before is None or after is None:
        return True
    if MODERATION not in before.enabled_extensions or before.level(MODERATION) != after.level(MODERATION):
        return True
    return any(
        before.power(signer) != after.power(signer) or before.entities.get(signer) != after.entities.get(signer)
        for signer in context.signers(overlay(room_id))
    )


def _entry(context: AfterWrite, room_id: RoomId, action: Fields) -> IndexEntry | None:
    """Return a decision as it is indexed; None for what is none, or what its author has not signed as a whole."""
    target = target_of(action)
    keys = context.keys(str(action.get("by")))
    if target is None or keys is None:
        return None
    signed = {name: value for name, value in action.items() if name != "shard_id"}
    try:
        verify_content({"type": SIGNED_AS, **signed}, keys)
    except (Refused, ValueError):
        return None
    kept = {name: action.get(name, "") for name in ("action_id", "action", "by", "reason")}
    return IndexEntry(_INDEX, room_id, rank_of(GROUPS[action["action"]], target), kept)

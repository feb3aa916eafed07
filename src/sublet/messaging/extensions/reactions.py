"""EXT-03 Reactions: an emoji of somebody on a message, as a key of its own in a map that all members write."""

from __future__ import annotations

import unicodedata
from typing import Final

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
from sublet.messaging.extensions.emoji import ALIASES, JOINER, TAGS, is_one_emoji
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.writer_rules import entity_of_key

REACTIONS_FIELD: Final = "ext.reactions"
MAX_EMOJI_CHARS: Final = 32


def parse_key(key: str) -> tuple[str, EntityId] | None:
    """Return the emoji and the entity that a key names; None where it names none."""
    entity = entity_of_key(key)
    emoji = key.removesuffix(f":{entity}")
    return (emoji, entity) if emoji != key and _is_emoji(emoji) else None


def is_reaction(change: Happened) -> bool:
    """Tell whether a change adds or removes a reaction of whoever made it."""
    if len(change.path) != 2 or change.path[0] != REACTIONS_FIELD:
        return False
    found = parse_key(change.path[1])
    return found is not None and found[1] == change.signer


def _writes_reactions(intent: Intent) -> bool:
    path = intent.fields["path"]
    return bool(path[0] == REACTIONS_FIELD and len(path) > 1)


def _inject(context: PreSend) -> None:
    """Let everybody write only their own reactions, with the time at which they do."""
    path = context.fields["path"]
    found = parse_key(path[1]) if len(path) == 2 else None
    if found is None or found[1] != context.intent.entity:
        raise context.refuse("a reaction is an emoji of your own", "Give the emoji alone.")
    if context.fields["value"] is not None:
        context.fields["value"] = context.now_ms


def _emit(context: AfterWrite) -> None:
    change = context.change
    found = parse_key(change.path[1])
    if found is not None:
        kind = "reaction.removed" if change.value is None else "reaction.added"
        context.emit(kind, {"ref_id": change.entry_id, "emoji": found[0], "by": change.signer})


def _summarise(context: AfterRead) -> None:
    """Add to each message who reacted with what, the first reaction first.

    The ref's writes are the index, which every update feeds; so a reaction that counts no more is in no summary.
    """
    for ref in context.items:
        given = ref.get(REACTIONS_FIELD)
        if isinstance(given, dict) and (summary := _summary(given)):
            ref["reactions"] = summary


def _summary(given: Fields) -> dict[str, Fields]:
    times = sorted((at, key) for key, at in given.items() if isinstance(at, int))
    summary: dict[str, Fields] = {}
    for _, key in times:
        found = parse_key(key)
        if found is not None:
            entry = summary.setdefault(found[0], {"count": 0, "users": []})
            entry["count"] += 1
            entry["users"].append(found[1])
    return summary


def _is_emoji(text: str) -> bool:
    """Tell whether a text may stand as a reaction: short, visible, and no name of anybody."""
    return 0 < len(text) <= MAX_EMOJI_CHARS and "@" not in text and all(_is_visible(char) for char in text)


def _is_visible(char: str) -> bool:
    # Of all invisible characters only these belong to emoji: what joins two, and the tags of regional flags.
    category = unicodedata.category(char)
    return category[0] not in "CZ" or char == JOINER or ord(char) in TAGS


def _add(context: OperationContext, room_id: RoomId, ref_id: RefId, emoji: str) -> calls.Added:
    """React to a message; tell whether that is new.

    Args:
        context: who reacts.
        room_id: a room that they are a member of.
        ref_id: the message.
        emoji: one, or ``+1`` or ``-1``.

    Raises:
        SubletError: there is no such message, it is deleted, or this is no emoji.
    """
    ref, key = context.ref(room_id, ref_id), _key(emoji, context.entity)
    if ref["status"] == DELETED:
        raise SubletError(LocalCode.CONFLICT, "the message was deleted", "React to another one.")
    if key in _given(ref):
        return {"added": False}
    context.annotate(ref, "reactions", key, context.parts.now_ms())
    return {"added": True}


def _remove(context: OperationContext, room_id: RoomId, ref_id: RefId, emoji: str) -> calls.Removed:
    """Take a reaction back; tell whether there was one."""
    ref = context.ref(room_id, ref_id)
    key = f"{emoji}:{context.entity}"  # of earlier versions, which took words too
    if key not in _given(ref):
        key = _key(emoji, context.entity)
    if key not in _given(ref):
        return {"removed": False}
    context.annotate(ref, "reactions", key, None)
    return {"removed": True}


def _given(ref: Fields) -> Fields:
    given = ref.get(REACTIONS_FIELD)
    return given if isinstance(given, dict) else {}


def _key(emoji: str, entity: EntityId) -> str:
    composed = unicodedata.normalize("NFC", ALIASES.get(emoji, emoji))
    if not is_one_emoji(composed) or not _is_emoji(composed):
        raise SubletError(
            LocalCode.INVALID_ARGUMENT,
            "a reaction is one emoji",
            "Such as 👍, for which +1 stands too. What is in words is an answer.",
        )
    return f"{composed}:{entity}"


REACTIONS = Declaration(
    id="reactions",
    version="0.1.0",
    dependencies=("timeline",),
    origin=Origin.STANDARD,
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "reactions.inject",
                Trigger("timeline_index", Change.UPDATE, "reaction operation", _writes_reactions),
                30,
                _inject,
            ),
        ),
        after_write=(
            AfterWriteHook(
                "reactions.emit",
                Trigger("timeline_index", Change.UPDATE, "ext.reactions changed", is_reaction),
                40,
                _emit,
            ),
        ),
        after_read=(AfterReadHook("reactions.summarise", Trigger("timeline_index"), 45, _summarise),),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.ON_REF,
            "reactions",
            "'{emoji}:{entity_id}' -> unix_ms",
            writer_rule="any room member AND annotation_key contains signer_id",
            nested=True,
        ),
    ),
    indexes=(
        Index(
            id="reaction_summary",
            input="ref.ext.reactions",
            transform="ref_id -> {emoji -> count, users}",
            refresh=Refresh.ON_CHANGE,
        ),
    ),
    operations=(
        Operation(calls.add_reaction.id, calls.add_reaction.by(_add), writes="timeline_index"),
        Operation(calls.remove_reaction.id, calls.remove_reaction.by(_remove), writes="timeline_index"),
    ),
    events=("reaction.added", "reaction.removed"),
)

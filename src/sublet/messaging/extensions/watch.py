"""EXT-14 Watch: somebody is told of what happens to a message, or in channels, that they have put a watch on.

A watch is public, as an annotation under its owner's name; the events go to the owner alone, and only where the owner
is at home. Nobody is told of what they have done themselves, so that agents which answer do not wake themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from sublet.messaging.calls import message_calls as calls
from sublet.messaging.declaring.after_write import AfterWrite
from sublet.messaging.declaring.declaration import (
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
from sublet.messaging.extensions.channels import channel_name, channels_of, in_channels
from sublet.messaging.extensions.mutable import is_edit
from sublet.messaging.extensions.reactions import is_reaction, parse_key
from sublet.messaging.extensions.reply_to import reply_target
from sublet.messaging.extensions.threads import thread_root
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Origin
from sublet.messaging.schema.fields import Fields
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.room.state import RoomState

WATCH: Final = "watch"
WATCH_FIELD: Final = "ext.watch"
ALL_ROOMS: Final = "all_rooms"
THIS_ROOM: Final = "this_room"
FLAGS: Final[Mapping[str, bool]] = {
    "on_content_edit": True,
    "on_reply": True,
    "on_thread": True,
    "on_reaction": False,
}
"""What a watch on a message may tell of, and whether it does unless it says otherwise."""
MAX_REASON_CHARS: Final = 200
MAX_WATCHED_CHANNELS: Final = 64
MAX_LISTED: Final = 500
_INDEX: Final = "my_watches"


def _on_a_ref(intent: Intent) -> bool:
    path = intent.fields["path"]
    return bool(path[0] == WATCH_FIELD and len(path) > 1)


def _on_channels(intent: Intent) -> bool:
    return tuple(intent.fields["path"][:2]) == ("ext", WATCH)


def _set_ref(context: PreSend) -> None:
    """Let everybody write only their own watch, in its one form."""
    path, value = context.fields["path"], context.fields["value"]
    if len(path) != 2 or path[1] != context.intent.entity:
        raise context.refuse("a watch is of whoever sets it", "Use watch.set.")
    if value is None:
        return
    checked = _ref_watch(value)
    if checked is None:
        raise context.refuse(f"a watch has a reason and the flags {', '.join(FLAGS)}", "Use watch.set.")
    context.fields["value"] = checked


def _set_channel(context: PreSend) -> None:
    path, value = context.fields["path"], context.fields["value"]
    if len(path) != 3 or path[2] != context.intent.entity:
        raise context.refuse("a watch is of whoever sets it", "Use watch.set.")
    if value is None:
        return
    checked = _channel_watch(value)
    if checked is None:
        raise context.refuse(
            f"a watch names from 1 to {MAX_WATCHED_CHANNELS} channels, and {ALL_ROOMS} or {THIS_ROOM}", "Use watch.set."
        )
    context.fields["value"] = checked


def _ref_watch(value: object) -> dict[str, JsonValue] | None:
    """Return a watch on a message with all that it may say; None where it is none."""
    if not isinstance(value, dict):
        return None
    reason = value.get("reason", "")
    flags = {name: value.get(name, default) for name, default in FLAGS.items()}
    if not isinstance(reason, str) or len(reason) > MAX_REASON_CHARS or set(value) - {"reason", *FLAGS}:
        return None
    return {"reason": reason, **flags} if all(isinstance(flag, bool) for flag in flags.values()) else None


def _channel_watch(value: object) -> Fields | None:
    """Return a watch on channels in its one form; None where it is none."""
    channels = value.get("channels") if isinstance(value, dict) else None
    scope = value.get("scope", ALL_ROOMS) if isinstance(value, dict) else None
    if not isinstance(channels, list) or not 0 < len(channels) <= MAX_WATCHED_CHANNELS:
        return None
    names = [channel_name(name) for name in channels]
    if None in names or scope not in (ALL_ROOMS, THIS_ROOM):
        return None
    return {"channels": [name for name in dict.fromkeys(names) if name is not None], "scope": scope}


def _concerns_watchers(change: Happened) -> bool:
    """Tell whether a change of a timeline is of a kind that somebody may watch for."""
    if change.event is Change.INSERT:
        return reply_target(change.fields) is not None or thread_root(change.fields) is not None
    return is_edit(change) or is_reaction(change)


def _check_ref_watchers(context: AfterWrite) -> None:
    change = context.change
    if change.event is Change.INSERT:
        _check_answered(context)
        return
    ref = context.read_ref(str(change.entry_id))
    if ref is None or ref["room_id"] != change.room_id:
        return
    if is_edit(change):
        tell_of_edit(context, ref)
    elif (found := parse_key(change.path[1])) is not None:
        for watcher in _watchers(context, ref, "on_reaction"):
            _tell(
                context,
                "watch.ref_reaction_changed",
                watcher,
                ref["ref_id"],
                emoji=found[0],
                by=change.signer,
                removed=change.value is None,
            )


def tell_of_edit(context: AfterWrite, ref: Fields) -> None:
    """Tell those of ours who watch a message that its text was edited, by its author or by another editor.

    Nobody is told where the room has not enabled watches.
    """
    room = context.room
    if room is None or WATCH not in room.enabled_extensions:
        return
    for watcher in _watchers(context, ref, "on_content_edit"):
        _tell(context, "watch.ref_content_edited", watcher, ref["ref_id"], new_content_id=ref["content_id"])


def _check_answered(context: AfterWrite) -> None:
    """Tell who watches the message that a new one answers, and who watches the first one of its thread."""
    change = context.change
    target, root = reply_target(change.fields), thread_root(change.fields)
    if target is not None:
        answered = _ref_of(context, target.room_id or change.room_id, target.ref_id)
        for watcher in _watchers(context, answered, "on_reply"):
            _tell(context, "watch.ref_reply_added", watcher, target.ref_id, new_ref_id=change.entry_id)
    if root is not None:
        first = _ref_of(context, change.room_id, root)
        for watcher in _watchers(context, first, "on_thread"):
            _tell(context, "watch.ref_thread_reply", watcher, root, new_ref_id=change.entry_id)


def _ref_of(context: AfterWrite, room_id: RoomId | None, ref_id: RefId) -> Fields | None:
    ref = context.read_ref(ref_id)
    return ref if ref is not None and ref["room_id"] == room_id else None


def _watchers(context: AfterWrite, ref: Fields | None, flag: str) -> Iterator[EntityId]:
    """Yield those of ours who watch a message for something, may read both it and the change, and didn't make it."""
    given = ref.get(WATCH_FIELD) if ref is not None else None
    if ref is None or not isinstance(given, dict):
        return
    for entity in context.ours():
        watch = _ref_watch(given.get(entity))
        if watch is not None and watch[flag] and entity != context.change.signer:
            rooms = {state.room_id for state in context.rooms_of(entity)}
            if {ref["room_id"], context.change.room_id} <= rooms:
                yield entity


def _tell(context: AfterWrite, kind: str, watcher: EntityId, watched: RefId, **more: JsonValue) -> None:
    context.emit(kind, {"watcher": watcher, "watched_ref": watched, **more})


def _check_channel_watchers(context: AfterWrite) -> None:
    """Tell those of ours who watch a channel of a new message, by a watch in any of their rooms."""
    change, tags = context.change, channels_of(context.change.fields)
    for entity in context.ours():
        states = context.rooms_of(entity)
        if entity == change.signer or change.room_id not in {state.room_id for state in states}:
            continue
        watches = [(state.room_id, _watch_in(state, entity)) for state in states]
        watched = {
            name
            for room_id, watch in watches
            if watch is not None and (watch["scope"] == ALL_ROOMS or room_id == change.room_id)
            for name in watch["channels"]
        }
        for name in tags:
            if name in watched:
                context.emit(
                    "watch.channel_new_ref", {"watcher": entity, "channel": name, "new_ref_id": change.entry_id}
                )


def _watch_in(state: RoomState, entity: EntityId) -> Fields | None:
    """Return somebody's watch on channels that stands in a room's config."""
    return _channel_watch(state.fields.get(("ext", WATCH, entity))) if WATCH in state.enabled_extensions else None


def _is_own_watch(change: Happened) -> bool:
    return change.path == (WATCH_FIELD, change.signer)


def _remember(context: AfterWrite) -> None:
    """Keep which messages somebody watches, by what counts now: of two writes at once it may not be this one."""
    change = context.change
    ref = _ref_of(context, change.room_id, str(change.entry_id))
    given = ref.get(WATCH_FIELD) if ref is not None else None
    rank = f"{change.room_id}/{change.entry_id}"
    if isinstance(given, dict) and change.signer in given:
        context.index([IndexEntry(_INDEX, change.signer, rank, {"room_id": change.room_id, "ref_id": change.entry_id})])
    else:
        context.unindex(_INDEX, change.signer, rank)


def _set(
    context: OperationContext,
    room_id: RoomId,
    ref_id: RefId | None = None,
    channels: list[str] | None = None,
    reason: str = "",
    on_content_edit: bool = FLAGS["on_content_edit"],
    on_reply: bool = FLAGS["on_reply"],
    on_thread: bool = FLAGS["on_thread"],
    on_reaction: bool = FLAGS["on_reaction"],
    scope: str = ALL_ROOMS,
) -> None:
    """Watch a message, or channels; a watch that is there already is replaced.

    Args:
        context: who watches.
        room_id: the room of the message; for channels the room whose config keeps the watch.
        ref_id: a message.
        channels: from 1 to ``MAX_WATCHED_CHANNELS`` channels; either these or a message.
        reason: why, for others to read; at most ``MAX_REASON_CHARS`` characters.
        on_content_edit: whether to tell of edits of the message.
        on_reply: whether to tell of replies to it.
        on_thread: whether to tell of replies in its thread.
        on_reaction: whether to tell of reactions to it.
        scope: ``all_rooms`` of the watcher, or ``this_room``; of channels.

    Raises:
        SubletError: there is no such message, or this is no watch.
    """
    if (ref_id is None) == (channels is None):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "a watch is on one message or on channels", "Give one of them.")
    if ref_id is not None:
        flags = {
            "on_content_edit": on_content_edit,
            "on_reply": on_reply,
            "on_thread": on_thread,
            "on_reaction": on_reaction,
        }
        context.annotate(context.ref(room_id, ref_id), WATCH, context.entity, {"reason": reason, **flags})
        return
    _write_config(context, room_id, {"channels": channels, "scope": scope})


def _unset(context: OperationContext, room_id: RoomId, ref_id: RefId | None = None) -> calls.Removed:
    """End the watch on a message, or without ``ref_id`` that on channels; tell whether there was one."""
    if ref_id is None:
        there = ("ext", WATCH, context.entity) in context.state(room_id).fields
        if there:
            _write_config(context, room_id, None)
        return {"removed": there}
    ref = context.ref(room_id, ref_id)
    given = ref.get(WATCH_FIELD)
    if not isinstance(given, dict) or context.entity not in given:
        return {"removed": False}
    context.annotate(ref, WATCH, context.entity, None)
    return {"removed": True}


def _write_config(context: OperationContext, room_id: RoomId, value: Fields | None) -> None:
    context.state(room_id)
    config = doc_id("config", room_id=room_id)
    context.parts.writing.set_field(context.entity, config, None, ("ext", WATCH, context.entity), value)


def _list(context: OperationContext) -> calls.WatchesFound:
    """Return the caller's watches on messages and on channels, of the rooms that they are a member of."""
    engine, entity = context.parts, context.entity
    refs: list[Fields] = []
    for entry in engine.store.scan_index(_INDEX, entity, MAX_LISTED):
        room_id, ref_id = str(entry.value["room_id"]), str(entry.value["ref_id"])
        ref = engine.reading.ref_in(room_id, ref_id) if engine.here.is_member(entity, room_id) else None
        given = ref.get(WATCH_FIELD) if ref is not None else None
        watch = _ref_watch(given.get(entity)) if isinstance(given, dict) else None
        if watch is not None:
            refs.append({"room_id": room_id, "ref_id": ref_id, **watch})
    in_rooms = [(state.room_id, _watch_in(state, entity)) for state in engine.here.of(entity)]
    return {"refs": refs, "channels": [{"room_id": room, **watch} for room, watch in in_rooms if watch is not None]}


WATCHES: Final = Declaration(
    id=WATCH,
    version="0.1.0",
    dependencies=("timeline", "reply-to"),
    origin=Origin.STANDARD,
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "watch.set_ref",
                Trigger("timeline_index", Change.UPDATE, "annotation type == watch", _on_a_ref),
                30,
                _set_ref,
            ),
            PreSendHook(
                "watch.set_channel",
                Trigger("room_config", Change.UPDATE, "ext.watch changed", _on_channels),
                30,
                _set_channel,
            ),
        ),
        after_write=(
            AfterWriteHook(
                "watch.check_ref_watchers",
                Trigger("timeline_index", Change.ANY, "a reply, an edit or a reaction", _concerns_watchers),
                45,
                _check_ref_watchers,
            ),
            AfterWriteHook(
                "watch.check_channel_watchers",
                Trigger("timeline_index", Change.INSERT, "ext.channels present", in_channels),
                46,
                _check_channel_watchers,
            ),
            AfterWriteHook(
                "watch.remember",
                Trigger("timeline_index", Change.UPDATE, "ext.watch changed", _is_own_watch),
                47,
                _remember,
            ),
        ),
    ),
    annotations=(
        Annotation(
            AnnotationPlace.ON_REF,
            WATCH,
            "entity_id -> { reason, on_content_edit, on_reply, on_thread, on_reaction }",
            "key contains signer entity_id",
            nested=True,
        ),
        Annotation(
            AnnotationPlace.ON_ROOM_CONFIG,
            WATCH,
            "entity_id -> { channels: string[], scope }",
            "key contains signer entity_id",
            nested=True,
        ),
    ),
    indexes=(
        Index(
            id=_INDEX,
            input="all refs and rooms where I have a watch",
            transform="entity_id -> watched refs and channels",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.list_watches.id,
            read=calls.list_watches.by(_list),
        ),
    ),
    operations=(
        Operation(calls.set_watch.id, calls.set_watch.by(_set), writes="timeline_index"),
        Operation(calls.unset_watch.id, calls.unset_watch.by(_unset), writes="timeline_index"),
    ),
    events=(
        "watch.ref_content_edited",
        "watch.ref_reply_added",
        "watch.ref_thread_reply",
        "watch.ref_reaction_changed",
        "watch.channel_new_ref",
    ),
)

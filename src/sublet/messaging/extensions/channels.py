"""EXT-06 Channels: tags on messages, read across all rooms that somebody is in, and gone with their last message."""

from __future__ import annotations

import unicodedata
from typing import Final

from sublet.messaging.builtins.timeline import DEFAULT_LIMIT, DELETED, check_limit
from sublet.messaging.calls import message_calls as calls
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
from sublet.messaging.declaring.operating import OperationContext, no_message
from sublet.messaging.declaring.pre_send import PreSend
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.schema.changes import Happened, Intent
from sublet.messaging.schema.datatypes import Annotation, AnnotationPlace, Change, Origin
from sublet.messaging.schema.fields import Fields, FieldsView
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RoomId, is_ref_id
from sublet.protocol.ezagent.order import rank_text, stands_at_ms
from sublet.protocol.ezagent.room.state import RoomState
from sublet.protocol.patterns import Pattern

CHANNELS_FIELD: Final = "ext.channels"
HINTS: Final = ("ext", "channels", "hints")
MAX_CHANNELS_PER_REF: Final = 16
MAX_CHANNELS_LISTED: Final = 500
"""Channels of one room that are listed."""
LOOKED_BACK: Final = 32
"""Messages of a channel that may be gone before it counts as gone itself."""
MS_DIGITS: Final = 15
_CHANNEL = Pattern(r"[\pL\pN_][\pL\pN_-]{0,63}\Z")
_REFS: Final = "channel_refs"
_PLACES: Final = "channel_places"
"""Where each message of a channel stands, by its id, so that a page before it is found at once."""
_CHANNELS: Final = "channel_list"


def channel_name(text: object) -> str | None:
    """Return a channel as it is written, in lower case without ``#``; None where it is no name of one."""
    if not isinstance(text, str):
        return None
    name = unicodedata.normalize("NFC", text.removeprefix("#").casefold())
    return name if _CHANNEL.match(name) else None


def channels_of(fields: FieldsView) -> list[str]:
    """Return the channels that a ref is in, whatever its author may have written."""
    given = fields.get(CHANNELS_FIELD)
    if not isinstance(given, list):
        return []
    names = (name for name in given[:MAX_CHANNELS_PER_REF] if isinstance(name, str) and channel_name(name) == name)
    return list(dict.fromkeys(names))


def in_channels(subject: Intent | Happened) -> bool:
    """Tell whether a ref that is sent, or was, is tagged."""
    return subject.fields.get(CHANNELS_FIELD) is not None


def _inject(context: PreSend) -> None:
    given = context.fields[CHANNELS_FIELD]
    names = [channel_name(name) for name in given] if isinstance(given, list) else [None]
    found = list(dict.fromkeys(name for name in names if name is not None))
    if None in names or len(found) > MAX_CHANNELS_PER_REF:
        raise context.refuse(
            f"channels are a list of at most {MAX_CHANNELS_PER_REF} names of letters, digits, - and _",
            "Such as code-review.",
        )
    if found:
        context.annotate("channels", found)
    else:
        del context.fields[CHANNELS_FIELD]


def _update_activity(context: AfterWrite) -> None:
    change, fields = context.change, context.change.fields
    room, rank = str(change.room_id), context.rank()
    # Across rooms by the time at which a ref stands in its own, in a room as it stands there. A time to come counts as
    # that of arrival: each reader is in other rooms, so no two have to agree, and no room stands before all others.
    at_ms = min(stands_at_ms(rank), context.now_ms)
    for name in channels_of(fields):
        place = f"{at_ms:0{MS_DIGITS}}/{rank_text(rank)}/{change.entry_id}"
        context.index(
            [
                IndexEntry(_REFS, f"{room}/{name}", place, {"ref_id": change.entry_id}),
                IndexEntry(_PLACES, f"{room}/{name}", str(change.entry_id), {"place": place}),
                IndexEntry(_CHANNELS, room, name, {}),
            ]
        )
        context.emit("channel.activity", {"channel": name, "ref_id": change.entry_id, "author": change.signer})


def _aggregate(context: AfterRead) -> None:
    """Leave only the messages of the channel that is asked for; ``channels.refs`` merges the rooms of its reader."""
    name = context.query.get("channel")
    if name is not None:
        context.items = [ref for ref in context.items if name in channels_of(ref)]


def _refs(
    context: OperationContext,
    channel: str,
    limit: int = DEFAULT_LIMIT,
    before: str | None = None,
    room_id: RoomId | None = None,
) -> calls.RefPage:
    """Return the last messages of a channel, of all rooms that the caller is a member of, the oldest first.

    Args:
        context: who asks.
        channel: its name.
        limit: how many, from 1 to ``timeline.MAX_LIMIT``.
        before: the ``next_cursor`` of an earlier answer, or with ``room_id`` the id of a message.
        room_id: only the messages of this room.

    Returns:
        ``refs``, and ``next_cursor``, which is None where there are no older ones.
    """
    name = channel_name(channel)
    if name is None:
        raise SubletError(LocalCode.INVALID_ARGUMENT, "no name of a channel", "See channels.list.")
    check_limit(limit)
    if room_id is not None and before is not None and is_ref_id(before):
        before = _place_of(context, room_id, name, before)
    found: list[tuple[str, RoomId, str]] = []
    rooms = context.parts.here.of(context.entity) if room_id is None else [context.state(room_id)]
    for state in rooms:
        entries = context.parts.store.scan_index(_REFS, f"{state.room_id}/{name}", limit + 1, before)
        found += [(entry.rank, state.room_id, str(entry.value["ref_id"])) for entry in entries]
    found.sort(reverse=True)
    page = found[:limit]
    refs: dict[str, Fields] = {}
    for room_id in {room_id for _, room_id, _ in page}:
        here = [ref_id for _, room, ref_id in page if room == room_id]
        refs |= {ref["ref_id"]: ref for ref in context.shown(room_id, here, {"channel": name})}
    more = len(found) > limit
    return {
        "refs": [refs[ref_id] for _, _, ref_id in reversed(page) if ref_id in refs],
        "next_cursor": page[-1][0] if more else None,
    }


def _place_of(context: OperationContext, room_id: RoomId, name: str, ref_id: str) -> str:
    """Return where a message of a channel stands among those of its room.

    Raises:
        SubletError: ``NOT_FOUND``: it is none of the channel's.
    """
    found = context.parts.store.scan_index(_PLACES, f"{room_id}/{name}", 1, f"{ref_id}\0")
    if not found or found[0].rank != ref_id:
        raise no_message(ref_id)
    return str(found[0].value["place"])


def _list(context: OperationContext) -> list[calls.ChannelFound]:
    """Return the channels of all rooms that the caller is in: in how many, when last, and what admins call them."""
    found: dict[str, calls.ChannelFound] = {}
    for state in context.parts.here.of(context.entity):
        hints = _hints(state)
        for entry in context.parts.store.scan_index(_CHANNELS, state.room_id, MAX_CHANNELS_LISTED):
            last = _last_activity(context, state.room_id, entry.rank)
            if last is None:
                continue
            channel = found.setdefault(entry.rank, {"channel": entry.rank, "room_count": 0, "last_activity": last})
            channel["room_count"] += 1
            channel["last_activity"] = max(channel["last_activity"], last)
            if entry.rank in hints:
                channel.setdefault("name", hints[entry.rank])
    return sorted(found.values(), key=lambda channel: channel["last_activity"], reverse=True)


def _last_activity(context: OperationContext, room_id: RoomId, name: str) -> str | None:
    """Return when a channel was last written to in a room; None where nothing of it is left."""
    for entry in context.parts.store.scan_index(_REFS, f"{room_id}/{name}", LOOKED_BACK):
        ref = context.parts.reading.ref_in(room_id, str(entry.value["ref_id"]))
        if ref is not None and ref["status"] != DELETED and name in channels_of(ref):
            return str(ref["created_at"])
    return None


def _hints(state: RoomState) -> dict[str, str]:
    """Return what a room's admins call its channels."""
    given = state.fields.get(HINTS)
    hints: dict[str, str] = {}
    for hint in given if isinstance(given, list) else []:
        if isinstance(hint, dict):
            name, shown = hint.get("id"), hint.get("name")
            if isinstance(name, str) and isinstance(shown, str):
                hints[name] = shown
    return hints


CHANNELS = Declaration(
    id="channels",
    version="0.1.0",
    dependencies=("timeline", "room"),
    origin=Origin.STANDARD,
    hooks=Hooks(
        pre_send=(
            PreSendHook(
                "channels.inject_tags",
                Trigger("timeline_index", Change.INSERT, "has channels", in_channels),
                30,
                _inject,
            ),
        ),
        after_write=(
            AfterWriteHook(
                "channels.update_activity",
                Trigger("timeline_index", Change.INSERT, "ext.channels present", in_channels),
                50,
                _update_activity,
            ),
        ),
        after_read=(AfterReadHook("channels.aggregate", Trigger("timeline_index"), 50, _aggregate),),
    ),
    annotations=(
        Annotation(AnnotationPlace.ON_REF, "channels", "string[] (channels)", "message author", signed=True),
        Annotation(
            AnnotationPlace.ON_ROOM_CONFIG,
            "channels",
            "hints: [{ id, name, created_by }]",
            "signer.power_level >= admin",
            nested=True,
        ),
    ),
    indexes=(
        Index(
            id="channel_aggregation",
            input="timeline refs of all joined rooms",
            transform="by channel, merged by created_at",
            refresh=Refresh.ON_DEMAND,
            operation_id=calls.list_channel.id,
            read=calls.list_channel.by(_refs),
        ),
        Index(
            id=_CHANNELS,
            input="channels of all joined rooms",
            transform="channel -> { room_count, last_activity }",
            refresh=Refresh.ON_CHANGE,
            operation_id=calls.list_channels.id,
            read=calls.list_channels.by(_list),
        ),
    ),
    events=("channel.activity",),
)

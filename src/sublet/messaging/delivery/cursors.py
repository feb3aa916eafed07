"""Up to where an entity has taken up what happened: kept here, so that who was away finds first what came meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sublet.messaging.engine.backend import EventRow, IndexEntry
from sublet.messaging.engine.contexts import OperationContext
from sublet.messaging.engine.engine import Engine
from sublet.messaging.extensions.read_receipts import mark_read
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId

EVERYWHERE: Final = "*"
MAX_ROOMS: Final = 4_096
_INDEX: Final = "taken_up"


def taken_up(engine: Engine, entity: EntityId) -> dict[str, int]:
    """Return the cursors that an entity has acknowledged: of everything (``EVERYWHERE``), and further ones by room."""
    found: dict[str, int] = {}
    for entry in engine.store.scan_index(_INDEX, entity, MAX_ROOMS):
        cursor = entry.value["cursor"]
        if isinstance(cursor, int):
            found[entry.rank] = cursor
    return found


def news_filter(engine: Engine, entity: EntityId) -> Callable[[EventRow], bool]:
    """Return what tells whether an event is news for an entity: not taken up, and none of its own doings."""
    cursors = taken_up(engine, entity)
    everywhere = cursors.get(EVERYWHERE, 0)

    def is_news(row: EventRow) -> bool:
        until = max(everywhere, cursors.get(row.room_id or EVERYWHERE, 0))
        return row.cursor > until and entity not in (row.data.get("author"), row.data.get("by"))

    return is_news


def start_of_news(engine: Engine, entity: EntityId, room_id: RoomId | None) -> int:
    """Return the cursor after which there may be news."""
    cursors = taken_up(engine, entity)
    return max(cursors.get(EVERYWHERE, 0), cursors.get(room_id, 0) if room_id is not None else 0)


def take_up(engine: Engine, entity: EntityId, cursor: int, room_id: RoomId | None) -> None:
    """Keep that an entity has received all events up to a cursor, and with them read the messages they tell of.

    Args:
        engine: the engine.
        entity: one of ours.
        cursor: as an answer has named it; a lower one than before changes nothing.
        room_id: of one room only; None for all.

    Raises:
        SubletError: ``INVALID_ARGUMENT``: nothing has happened there yet.
    """
    if cursor > engine.events.cursor:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, f"there is no event {cursor} yet", "Give the cursor of an answer."
        )
    before = start_of_news(engine, entity, room_id)
    if cursor <= before:
        return
    _read(engine, entity, before, cursor, room_id)
    engine.store.put_index([IndexEntry(_INDEX, entity, room_id or EVERYWHERE, {"cursor": cursor})])


def _read(engine: Engine, entity: EntityId, after: int, until: int, room_id: RoomId | None) -> None:
    """Mark as read what the events between two cursors tell of, in each room up to the last of it."""
    last: dict[RoomId, RefId] = {}
    while rows := engine.events.since(after):
        for row in rows:
            after, ref = row.cursor, row.data.get("ref_id")
            room = row.room_id
            if row.kind != "message.new" or room is None or room_id not in (None, room) or not isinstance(ref, str):
                continue
            if row.cursor > until:
                break
            if room not in last or engine.reading.precedes(room, last[room], ref):
                last[room] = ref
        if after >= until:
            break
    for room, ref in last.items():
        if engine.is_member(entity, room):
            mark_read(OperationContext(engine, entity), room, ref)

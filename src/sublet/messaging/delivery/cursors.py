"""Taking up what happened: kept, and the messages that it tells of are read."""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from sublet.messaging.declaring.operating import OperationContext, OperationParts
from sublet.messaging.events.cursors import Cursors
from sublet.messaging.events.events import Events
from sublet.messaging.extensions.read_receipts import mark_read
from sublet.messaging.reading.reading import Reading
from sublet.messaging.rooms.here import RoomsHere
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId


class CursorParts(Protocol):
    """The parts of the engine for taking up events."""

    @property
    def cursors(self) -> Cursors: ...

    @property
    def events(self) -> Events: ...

    @property
    def here(self) -> RoomsHere: ...

    @property
    def operating(self) -> OperationParts: ...

    @property
    def reading(self) -> Reading: ...


def take_up(engine: CursorParts, entity: EntityId, cursor: int, room_id: RoomId | None) -> None:
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
    for room, ref in _last_messages(engine, entity, cursor, room_id).items():
        # A room in which its reader may write nothing, such as a closed one, keeps no receipts of theirs.
        if engine.here.is_member(entity, room):
            with suppress(SubletError):
                mark_read(OperationContext(engine.operating, entity), room, ref)
    engine.cursors.keep(entity, cursor, room_id)


def _last_messages(engine: CursorParts, entity: EntityId, until: int, room_id: RoomId | None) -> dict[RoomId, RefId]:
    """Return the last message, in each room, that the events tell of which are taken up now."""
    last: dict[RoomId, RefId] = {}
    after, is_news = engine.cursors.start(entity, room_id), engine.cursors.news(entity)
    while rows := [row for row in engine.events.since(after) if row.cursor <= until]:
        after = rows[-1].cursor
        for row in rows:
            room, ref = row.room_id, row.data.get("ref_id")
            if row.kind != "message.new" or room is None or not isinstance(ref, str) or not is_news(row):
                continue
            if room_id in (None, room) and (room not in last or engine.reading.precedes(room, last[room], ref)):
                last[room] = ref
    return last

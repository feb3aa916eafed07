"""Keeps up to where each of our entities has taken up events, so that who was away finds first what came meanwhile.

Rules: a cursor never goes back, and what an entity did itself is no news to it. Weak: whether a page of a room shows
all that is new there is looked up in a few pages of events; beyond these it stays new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sublet.messaging.ports.rows import EventRow, IndexEntry
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.ids import EntityId, RoomId

if TYPE_CHECKING:
    from sublet.messaging.events.events import Events

EVERYWHERE: Final = "*"
MAX_ROOMS: Final = 4_096
MAX_PAGES: Final = 4
"""Of events that are looked through to tell whether a page of a room shows all that is new there."""
_INDEX: Final = "taken_up"


class Cursors:
    """Kept cursors: one for everything, and further ones of single rooms.

    Args:
        store: where they are kept.
        events: what they are in.
    """

    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events

    def start(self, entity: EntityId, room_id: RoomId | None) -> int:
        """Return the cursor after which there may be news for an entity, of one room or of all."""
        cursors = self._kept(entity)
        return max(cursors.get(EVERYWHERE, 0), cursors.get(room_id, 0) if room_id is not None else 0)

    def news(self, entity: EntityId) -> Callable[[EventRow], bool]:
        """Return what tells whether an event is news for an entity: not taken up, and none of its own doings."""
        cursors = self._kept(entity)
        everywhere = cursors.get(EVERYWHERE, 0)

        def is_news(row: EventRow) -> bool:
            until = max(everywhere, cursors.get(row.room_id or EVERYWHERE, 0))
            return row.cursor > until and entity not in (row.data.get("author"), row.data.get("by"))

        return is_news

    def keep(self, entity: EntityId, cursor: int, room_id: RoomId | None) -> None:
        """Keep that an entity has taken up all events up to a cursor, of one room or of all; never goes back."""
        if cursor > self.start(entity, room_id):
            self._store.put_index([IndexEntry(_INDEX, entity, room_id or EVERYWHERE, {"cursor": cursor})])

    def page_shown(self, entity: EntityId, room_id: RoomId, cursor: int, refs: set[str]) -> None:
        """Take up a room of which an entity was shown a page that no new message up to a cursor is missing from."""
        is_news, after, new = self.news(entity), self.start(entity, room_id), False
        for _ in range(MAX_PAGES):
            rows = [row for row in self._events.since(after) if row.cursor <= cursor]
            if not rows:
                break
            after = rows[-1].cursor
            for row in rows:
                if row.room_id == room_id and is_news(row):
                    if row.kind == "message.new" and row.data.get("ref_id") not in refs:
                        return
                    new = True
        else:
            return
        if new:
            self.keep(entity, cursor, room_id)

    def _kept(self, entity: EntityId) -> dict[str, int]:
        found: dict[str, int] = {}
        for entry in self._store.scan_index(_INDEX, entity, MAX_ROOMS):
            cursor = entry.value["cursor"]
            if isinstance(cursor, int):
                found[entry.rank] = cursor
        return found

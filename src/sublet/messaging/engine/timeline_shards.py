"""Which shards a room's timeline has, and where the next ref goes (DESIGN 6)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.shards import REFS_PER_SHARD, month, month_of, number, sub_shard

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine

DEFAULT_REFS_PER_MONTH: Final = 100_000


class TimelineShards:
    """Shards by room, in order.

    Args:
        engine: what it is a part of.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._names: dict[RoomId, list[str]] = {}

    def names(self, room_id: RoomId) -> list[str]:
        """Return the shards of a room that are here, in order."""
        found = self._names.get(room_id)
        if found is None:
            rows = self._engine.store.documents(room_id, "index")
            found = self._names[room_id] = sorted(row.doc_id.rpartition("/")[2] for row in rows)
        return found

    def added(self, room_id: RoomId) -> None:
        """Look again, since a document was made."""
        self._names.pop(room_id, None)

    def current_month(self) -> str:
        """Return the month whose shards take new refs."""
        now = datetime.fromtimestamp(self._engine.now_ms() / 1000, UTC)
        return month_of(now.year, now.month)

    def for_new_ref(self, room_id: RoomId) -> str:
        """Return the document that the next ref goes to.

        Raises:
            SubletError: ``CONFLICT``: the room has had as many refs this month as its config allows.
        """
        this = self.current_month()
        # A peer whose clock is ahead may have begun a later month already.
        latest = next((name for name in reversed(self.names(room_id)) if month(name) <= this), this)
        last = number(latest) if month(latest) == this else 0
        name = doc_id("index", room_id=room_id, shard_id=sub_shard(this, last))
        filled = self._filled(name)
        if last * REFS_PER_SHARD + filled >= self._limit(room_id):
            raise SubletError(
                LocalCode.CONFLICT,
                "the room has had as many messages this month as it allows",
                "An admin may raise timeline.max_refs_per_window with sublet room config.",
            )
        if filled < REFS_PER_SHARD:
            return name
        return doc_id("index", room_id=room_id, shard_id=sub_shard(this, last + 1))

    def _filled(self, name: str) -> int:
        return len(self._engine.document(name).list) + self._engine.writing.pending(name)

    def _limit(self, room_id: RoomId) -> int:
        timeline = self._engine.rooms.state(room_id).fields.get(("timeline",))
        limit = timeline.get("max_refs_per_window") if isinstance(timeline, dict) else None
        return limit if isinstance(limit, int) and limit > 0 else DEFAULT_REFS_PER_MONTH

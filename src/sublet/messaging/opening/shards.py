"""Knows which shards a room's timeline has, and where the next ref goes (DESIGN 6.3).

Rules: a month is read from its first sub-shard on until one is empty, so a shard begins only behind one that has a ref.
Where a ref stands does not follow from its shard (``room_order.py``), so nobody's clock decides which shards are taken.
Weak: how full a shard is may differ between replicas that write at once,
so a shard may hold a few more refs than ``REFS_PER_SHARD``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import RoomId, created_ms
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.ref_shape import LAST_MS
from sublet.protocol.ezagent.shards import MAX_SUB_SHARD, REFS_PER_SHARD, month, month_of, number, sub_shard

DEFAULT_REFS_PER_MONTH: Final = 100_000
MAX_REFS_PER_MONTH: Final = (MAX_SUB_SHARD + 1) * REFS_PER_SHARD
"""What the shards of a month hold."""
LAST_MONTH: Final = "2999-12"
"""The last one that has a name: no time beyond it is told."""


class TimelineShards:
    """Shards by room, in order.

    Args:
        store: which documents a room has.
        documents: the same, opened.
        rooms: how many refs a room allows in a month.
        now_ms: the clock, Unix milliseconds.
    """

    def __init__(
        self,
        store: Store,
        documents: OpenDocuments,
        rooms: RoomStates,
        now_ms: Callable[[], int],
    ) -> None:
        self._store = store
        self._documents = documents
        self._rooms = rooms
        self._now_ms = now_ms
        documents.shard_opened.append(self.added)
        self._names: dict[RoomId, list[str]] = {}
        self._last: dict[tuple[RoomId, str], int] = {}

    def names(self, room_id: RoomId) -> list[str]:
        """Return the shards of a room that are here, in order."""
        found = self._names.get(room_id)
        if found is None:
            rows = self._store.documents(room_id, "index")
            found = self._names[room_id] = sorted(row.doc_id.rpartition("/")[2] for row in rows)
        return found

    def added(self, room_id: RoomId) -> None:
        """Look again, since a document was made."""
        self._names.pop(room_id, None)

    def forget(self, room_id: RoomId) -> None:
        """Forget a room, which is here no more."""
        self._names.pop(room_id, None)
        for key in [key for key in self._last if key[0] == room_id]:
            del self._last[key]

    def current_month(self) -> str:
        """Return the month whose shards take new refs."""
        return _month_at(self._now_ms())

    def for_new_ref(self, room_id: RoomId) -> str:
        """Return the document that the next ref goes to.

        Raises:
            SubletError: ``CONFLICT``: the room has had as many refs this month as its config allows.
        """
        # Nobody looks for refs from before the room, where our clock would have them.
        this = max(self.current_month(), _month_at(min(created_ms(room_id), LAST_MS)))
        last = self._last.get((room_id, this))
        if last is None:
            last = self._last_filled(room_id, this)
        while (filled := self._filled(_name(room_id, this, last))) >= REFS_PER_SHARD and last < MAX_SUB_SHARD:
            last += 1
        self._last[room_id, this] = last
        limit = self._limit(room_id)
        if last * REFS_PER_SHARD + filled >= min(limit, MAX_REFS_PER_MONTH):
            more = min(2 * limit, MAX_REFS_PER_MONTH)
            raised = f"An admin may raise it: sublet room config {room_id} --set timeline.max_refs_per_window={more}"
            raise SubletError(
                LocalCode.CONFLICT,
                f"the room has had as many messages this month as it allows, {min(limit, MAX_REFS_PER_MONTH)}",
                raised if more > limit else "Go on in a new room.",
            )
        return _name(room_id, this, last)

    def first_month(self, room_id: RoomId) -> str:
        """Return the month in which a room was opened, by its id; this one where that says a later one."""
        return _month_at(min(created_ms(room_id), self._now_ms()))

    def may_begin(self, room_id: RoomId, shard: str) -> bool:
        """Tell whether somebody's ref may be the first of a shard.

        All know where to look for it then: a month is read from its first sub-shard on until one is empty.
        """
        if not self.first_month(room_id) <= month(shard) <= LAST_MONTH:
            return False
        if number(shard) == 0:
            return True
        before = _name(room_id, month(shard), number(shard) - 1)
        if self._documents.is_new(before):
            return False
        document = self._documents.open(before)
        return self._store.has_entries(document.row.number) or document.elements.in_memory > 0 or bool(document.forks)

    def _last_filled(self, room_id: RoomId, of_month: str) -> int:
        """Return the sub-shard up to which all before are half full at least, so that none is passed over for a few."""
        store = self._store
        for index in range(MAX_SUB_SHARD + 1):
            row = store.find_document(_name(room_id, of_month, index))
            if row is None or (
                2 * store.count_entries(row.number) < REFS_PER_SHARD and not store.trust.forks(row.number)
            ):
                return max(index - 1, 0)
        return MAX_SUB_SHARD

    def _filled(self, name: str) -> int:
        document = self._documents.open(name)
        return len(document.elements.chain) + document.unwritten

    def _limit(self, room_id: RoomId) -> int:
        timeline = self._rooms.state(room_id).fields.get(("timeline",))
        limit = timeline.get("max_refs_per_window") if isinstance(timeline, dict) else None
        return limit if isinstance(limit, int) and limit > 0 else DEFAULT_REFS_PER_MONTH


def _month_at(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return month_of(at.year, at.month)


def _name(room_id: RoomId, of_month: str, index: int) -> str:
    return doc_id("index", room_id=room_id, shard_id=sub_shard(of_month, index))

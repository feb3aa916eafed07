"""Goes back in a room: asks for older months where a reader comes to the beginning of what is here.

Rules: no further than the month in the room's id. Weak: a month that nobody who is reachable has ends the way back.
"""

from __future__ import annotations

from functools import partial
from typing import Final, Protocol

import anyio

from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.syncing.sync import Sync
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.shards import months_back, previous_month

MAX_MONTHS: Final = 240
"""How far back a room is followed."""
AGAIN_SECONDS: Final = 300.0
"""How long what was asked for counts as complete, unless a link changes meanwhile."""

PATIENCE_SECONDS: Final = 5.0
"""How long a reader waits for what peers may have; what comes later is there the next time."""
MAX_ASKED: Final = 16_384


class HistoryParts(Protocol):
    """The parts of the engine for going back in a room."""

    @property
    def here(self) -> RoomsHere: ...

    @property
    def shards(self) -> TimelineShards: ...


class History:
    """Asks for months before those that are heard, the newest first.

    Args:
        sync: asks.
        call: runs something with the engine.
    """

    def __init__(self, sync: Sync, call: CallEngine) -> None:
        self._sync = sync
        self._call = call
        self._asked: dict[tuple[RoomId, str], float] = {}
        self._limiter = anyio.Semaphore(1)

    def link_changed(self) -> None:
        """Ask again: whoever is there now may know more."""
        self._asked.clear()

    async def reach_back(self, room_id: RoomId, seq: int) -> bool:
        """Ask for older months of a room until one brings something new; tell whether something has come.

        Args:
            room_id: the room.
            seq: up to where the log was read before; what is beyond has come meanwhile, by reconciling say.
        """
        asked = False
        async with self._limiter:
            months = await self._call(partial(_older, room_id=room_id))
            with anyio.move_on_after(PATIENCE_SECONDS):
                for month in months:
                    if self._is_due(room_id, month):
                        asked = True
                        if await self._sync.month(room_id, month):
                            return True
        return asked and await self._call(lambda engine: engine.store.last_seq()) > seq

    def _is_due(self, room_id: RoomId, month: str) -> bool:
        """Tell whether a month has to be asked for, and note that it is."""
        now = anyio.current_time()
        if now - self._asked.get((room_id, month), -AGAIN_SECONDS) < AGAIN_SECONDS:
            return False
        if len(self._asked) >= MAX_ASKED:
            self._asked.clear()
        self._asked[room_id, month] = now
        return True


def _older(engine: HistoryParts, room_id: RoomId) -> list[str]:
    """Return the months of a room before those that are heard, the newest first, back to when it was opened."""
    if room_id not in engine.here.ids:
        return []
    first = engine.shards.first_month(room_id)
    found: list[str] = []
    for month in months_back(previous_month(previous_month(engine.shards.current_month()))):
        if month < first or len(found) >= MAX_MONTHS:
            break
        found.append(month)
    return found

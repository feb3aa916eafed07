"""How far the clocks of others are from ours, by the times that they sign what they ask us with.

Rules: it is told once when a clock begins to differ and once when it is right again, in each room where its daemon
asks; no order follows from it. A question that was signed by another clock is answered too, where it is of now by that
clock: no older than five minutes beside the last one. Weak: a daemon that has stopped asking keeps the difference that
it had; where somebody repeats an old question of a daemon that is silent, that one is told of wrongly until it asks.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from sublet.messaging.events.events import Events
from sublet.messaging.ports.store import Store
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.question import MAX_AGE_MS

DIFFERS_MS: Final = 60_000
"""Clocks that are as far apart as this are told of."""
SURE_MS: Final = 90_000
"""How long a time of now outweighs an older one, which may be a question that somebody repeats."""
MAX_DAEMONS: Final = 4_096
MAX_TOLD: Final = 4_096
CLOCK_EVENT: Final = "room.clock_differs"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Clock:
    ahead_ms: int = 0
    fresh_ms: int | None = None
    """When it was last found to be right."""
    its_ms: int = 0
    """The latest time on questions that were signed by another clock."""
    came_ms: int | None = None
    """When one of these came."""


class PeerClocks:
    """The clocks of other daemons. Used on the engine's thread.

    Args:
        store: where events are kept.
        events: what is told.
        now_ms: our clock, Unix milliseconds.
        home: returns the daemon at which an entity is at home.
    """

    def __init__(
        self, store: Store, events: Events, now_ms: Callable[[], int], home: Callable[[EntityId], str]
    ) -> None:
        self._home = home
        self._store = store
        self._events = events
        self._now_ms = now_ms
        self._clocks: OrderedDict[str, _Clock] = OrderedDict()
        self._told: OrderedDict[tuple[RoomId, str], None] = OrderedDict()
        self._differing: dict[str, int] = {}
        self.listeners: list[Callable[[dict[str, int]], None]] = []
        """Told by how many milliseconds clocks are ahead of ours, of those that differ, by node id."""

    def asked(self, asker: EntityId, room_id: RoomId | None, signed_ms: int) -> None:
        """Take the time on a question of now, whose asker is proven."""
        clock, now = self._of(self._home(asker)), self._now_ms()
        clock.fresh_ms = now
        self._set(asker, room_id, clock, signed_ms - now)

    def by_its_own(self, asker: EntityId, room_id: RoomId | None, signed_ms: int) -> int | None:
        """Take the time on a question that was signed by another clock.

        Returns:
            What time it is by that clock; None where the question is of no time that it may have now.
        """
        clock, now = self._of(self._home(asker)), self._now_ms()
        if signed_ms < now and _is_recent(clock.fresh_ms, now):
            return None  # said before: the clock is right
        if signed_ms < clock.its_ms - MAX_AGE_MS and _is_recent(clock.came_ms, now):
            return None
        goes_on = _is_recent(clock.came_ms, now)
        clock.its_ms, clock.came_ms = max(signed_ms, clock.its_ms if goes_on else 0), now
        self._set(asker, room_id, clock, clock.its_ms - now)
        return clock.its_ms

    def _of(self, home: str) -> _Clock:
        clock = self._clocks.get(home)
        if clock is None:
            clock = self._clocks[home] = _Clock()
            while len(self._clocks) > MAX_DAEMONS:
                gone, _ = self._clocks.popitem(last=False)
                self._note({name: ahead for name, ahead in self._differing.items() if name != gone})
        self._clocks.move_to_end(home)
        return clock

    def _set(self, asker: EntityId, room_id: RoomId | None, clock: _Clock, ahead_ms: int) -> None:
        home, clock.ahead_ms = self._home(asker), ahead_ms
        differs = abs(ahead_ms) >= DIFFERS_MS
        if differs:
            if home not in self._differing:
                log.warning("a peer's clock differs from ours", node=home, ahead_seconds=ahead_ms // 1_000)
            self._note({**self._differing, home: ahead_ms})
        elif home in self._differing:
            log.info("a peer's clock is right again", node=home)
            self._note({name: ahead for name, ahead in self._differing.items() if name != home})
        if room_id is not None and differs is not ((room_id, home) in self._told):
            self._tell(asker, room_id, ahead_ms if differs else 0)

    def _note(self, differing: dict[str, int]) -> None:
        before, self._differing = self._differing, differing
        if {name: ahead // DIFFERS_MS for name, ahead in before.items()} != {
            name: ahead // DIFFERS_MS for name, ahead in differing.items()
        }:
            for listener in self.listeners:
                listener(differing)

    def _tell(self, asker: EntityId, room_id: RoomId, ahead_ms: int) -> None:
        key = room_id, self._home(asker)
        if ahead_ms:
            self._told[key] = None
            while len(self._told) > MAX_TOLD:
                self._told.popitem(last=False)
        else:
            del self._told[key]
        with self._store.transaction():
            self._events.tell(
                CLOCK_EVENT, room_id, {"room_id": room_id, "entity": asker, "ahead_seconds": ahead_ms // 1_000}
            )
            events = self._events.write()
        self._events.publish(events)


def _is_recent(at_ms: int | None, now_ms: int) -> bool:
    return at_ms is not None and 0 <= now_ms - at_ms < SURE_MS

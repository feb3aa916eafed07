"""Finds members whose signed roots contradict each other, or what they show (DESIGN 9.11).

A root says how much of a room a member holds, and that never gets less: whatever is written raises it. So whoever
signs less later has *gone back*; whoever signs two digests for as much has two histories, and has *forked*; and of
whom all was asked for and taken, and who has still signed as much as we hold and something else, *withholds*.
Members pass on what others have signed where their own roots differ, so who tells each of them something else is found
by whoever hears of both.

Rules: what is found is told once in the room, and in the status until that member shows that it is over; two states
that exclude each other are told until the daemon ends.
Weak: of a room with a fork roots are compared by how many forks they count, since who learns how far back a fork goes
holds a little less; who has told us, beside, something that we can't take is not judged by what it withholds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import structlog

from sublet.messaging.events.events import Events
from sublet.protocol.ezagent.digest_tree import CLOCKS_OF_FORK, Node
from sublet.protocol.ezagent.ids import EntityId, RoomId

ROLLED_BACK_EVENT: Final = "room.rolled_back"
CONTRADICTED_EVENT: Final = "room.root_contradicted"
MAX_KEPT: Final = 1_024
"""Members and rooms of which something is told in the status; of more the oldest is told no longer."""

log = structlog.get_logger(__name__)


class Lie(StrEnum):
    """How a member's signed root is contradicted."""

    ROLLED_BACK = "has less of the room than it has signed before"
    FORKED = "has signed two states of the room that exclude each other"
    WITHHELD = "has signed that it holds more of the room than it shows"


@dataclass(frozen=True, slots=True)
class Signed:
    """What a member has signed, and when, Unix milliseconds by its own clock."""

    at_ms: int
    node: Node


@dataclass(frozen=True, slots=True)
class _Found:
    lie: Lie
    clocks: int
    """Of who has less than before: with a root that says at least as much it is over."""


class Contradictions:
    """What was found. Used on the engine's thread.

    Args:
        events: tells the room.
    """

    def __init__(self, events: Events) -> None:
        self._events = events
        self.listeners: list[Callable[[dict[tuple[RoomId, EntityId], Lie]], None]] = []
        """Told of all that are not over, by room and member, whenever that changes."""
        self._found: dict[tuple[RoomId, EntityId], _Found] = {}

    def compare(self, room_id: RoomId, entity: EntityId, before: Signed, now: Signed) -> None:
        """Compare a root with what its signer was known to have signed before; inside a transaction.

        One that was signed earlier says nothing by being more: a clock may have been set back meanwhile.
        """
        if before.node.clocks == now.node.clocks:
            if not before.node.same(now.node) and not _forks(now.node):
                self._note(room_id, entity, Lie.FORKED, 0)
        elif before.at_ms < now.at_ms and _is_less(now.node, before.node):
            self._note(room_id, entity, Lie.ROLLED_BACK, before.node.clocks)

    def shown(self, room_id: RoomId, entity: EntityId, theirs: Node, ours: Node) -> None:
        """Compare a root with what is here once all that its signer shows was taken; inside a transaction."""
        more, forks = theirs.clocks >= ours.clocks, (_forks(theirs), _forks(ours))
        if not ours.same(theirs) and ((more and not any(forks)) or forks[0] > forks[1]):
            self._note(room_id, entity, Lie.WITHHELD, 0)
        else:
            self._end(room_id, entity, Lie.WITHHELD)

    def stated(self, room_id: RoomId, entity: EntityId, node: Node, ours: Callable[[], Node]) -> None:
        """Tell no longer of a member that states as much as before, or what is here."""
        found = self._found.get((room_id, entity))
        if found is not None and node.clocks >= found.clocks:
            self._end(room_id, entity, Lie.ROLLED_BACK)
        if found is not None and ours().same(node):
            self._end(room_id, entity, Lie.WITHHELD)

    def _end(self, room_id: RoomId, entity: EntityId, lie: Lie) -> None:
        found = self._found.get((room_id, entity))
        if found is not None and found.lie is lie:
            del self._found[room_id, entity]
            self._changed()

    def _changed(self) -> None:
        for listener in self.listeners:
            listener({key: one.lie for key, one in self._found.items()})

    def _note(self, room_id: RoomId, entity: EntityId, lie: Lie, clocks: int) -> None:
        before = self._found.pop((room_id, entity), None)
        if len(self._found) >= MAX_KEPT:
            del self._found[next(iter(self._found))]
        self._found[room_id, entity] = _Found(lie, clocks)
        self._changed()
        if before is not None and before.lie is lie:
            return
        log.warning("a member's signed root is contradicted", signer=entity, room=room_id, how=str(lie))
        data = {"room_id": room_id, "entity": entity}
        if lie is Lie.ROLLED_BACK:
            self._events.tell(ROLLED_BACK_EVENT, room_id, {**data})
        else:
            self._events.tell(CONTRADICTED_EVENT, room_id, {**data, "how": lie.name.lower()})


def _forks(node: Node) -> int:
    """Return how many forks a root counts."""
    return node.clocks // CLOCKS_OF_FORK


def _is_less(second: Node, first: Node) -> bool:
    """Tell whether a root says less than one before, beyond what learning more of a fork takes away."""
    forks = _forks(second), _forks(first)
    return second.clocks < first.clocks if not any(forks) else forks[0] < forks[1]

"""Gathers what others write to a long config, so that deciding the room's state takes a bounded share of the thread.

A room's state is decided from all statements of its config, and anew whenever one is added. A member who sends
statements one by one would make that quadratic. So statements for a long config wait, verified and in memory, until
the pause after the last decision is over, or until so many wait that deciding is worth their number. Both together keep
the work linear in what was sent. What waits is as if it were still on its way: nothing is refused, nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.documents.document import Document
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.update import Update

FREE_STATEMENTS: Final = 64
"""Configs up to this length are decided with each batch; that takes a few milliseconds."""
PAUSE_MS_OF_STATEMENT: Final = 1
"""After a decision, for each statement. Deciding takes 25 to 65 microseconds of each, so a share of about 5 %."""
PART_OF_CONFIG: Final = 8
"""When one in so many statements is new, all are taken without a pause."""
MAX_GATHERED_BYTES_OF_ROOM: Final = 1 << 20
MAX_GATHERED_BYTES: Final = 8 << 20
"""Of all rooms. Beyond either bound, all that waits of the room with the most is taken."""
MAX_REFUSED: Final = 64
"""Documents of a room that are asked for again once its state is decided."""
ARRIVAL_BYTES: Final = 512
"""What an update takes beside its bytes."""


@dataclass(slots=True)
class _Waiting:
    """What waits of one room: by its bytes, and up to which clocks of which clients it goes on from what is here.

    ``refused`` names documents of whose updates more may count once this is taken.
    """

    arrivals: dict[bytes, Arrival] = field(default_factory=dict)
    clocks: dict[int, int] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    size: int = 0


class ConfigGathering:
    """What waits, of all rooms; used on the engine's thread.

    Args:
        rooms: how long their configs are.
        now_ms: the clock, Unix milliseconds.
    """

    def __init__(self, rooms: RoomStates, now_ms: Callable[[], int]) -> None:
        self._states = rooms
        self._now_ms = now_ms
        self._rooms: dict[RoomId, _Waiting] = {}
        self._decided_ms: dict[RoomId, int] = {}
        self._open: set[RoomId] = set()
        """Rooms whose state is decided with this batch anyway."""
        self.size = 0

    def keep(self, document: Document, update: Update, arrival: Arrival) -> bool:
        """Keep a verified update for later; tell whether it was kept, and not to be taken now.

        Args:
            document: a config.
            update: what changes it.
            arrival: the same, as it came.
        """
        room_id = document.place.room_id
        if room_id is None or room_id in self._open or self._wait_ms(room_id) <= 0:
            return False
        waiting = self._rooms.setdefault(room_id, _Waiting())
        if arrival.envelope not in waiting.arrivals:
            size = arrival.size + ARRIVAL_BYTES
            waiting.arrivals[arrival.envelope] = arrival
            waiting.size += size
            self.size += size
        client = update.client
        known = max(waiting.clocks.get(client, 0), document.next_clock(client))
        if update.items and update.start <= known:
            waiting.clocks[client] = max(update.end, known)
        return True

    def due(self) -> tuple[list[Arrival], set[str]]:
        """Return what is to be taken now, and hold it no longer; and the documents to be asked for after that."""
        found: list[Arrival] = []
        names: set[str] = set()
        for room_id in [room_id for room_id, waiting in self._rooms.items() if self._is_due(room_id, waiting)]:
            self._release(room_id, found, names)
        while self.size > MAX_GATHERED_BYTES:
            self._release(max(self._rooms, key=lambda room_id: self._rooms[room_id].size), found, names)
        return found, names

    def refused(self, name: str) -> None:
        """Note that an update of a document was refused, which may count once what waits of its room is taken."""
        waiting = self._rooms.get(_room_of(name))
        if waiting is not None and len(waiting.refused) < MAX_REFUSED:
            waiting.refused.add(name)

    def wait_seconds(self) -> float | None:
        """Return how long it is until something is due; None where nothing waits."""
        waits = [self._wait_ms(room_id) for room_id in self._rooms]
        return max(0, min(waits)) / 1_000 if waits else None

    def clocks(self, name: str) -> dict[int, int]:
        """Return up to which clocks of its clients a document waits here, so that nobody is asked for it again."""
        waiting = self._rooms.get(_room_of(name))
        return waiting.clocks if waiting is not None and name == doc_id("config", room_id=_room_of(name)) else {}

    def decided(self, room_id: RoomId) -> None:
        """Note that a room's state was decided anew; the pause begins."""
        self._decided_ms[room_id] = self._now_ms()

    def accepted(self, room_id: RoomId) -> None:
        """Note that a config changes with this batch: what else comes for it is taken along."""
        self._open.add(room_id)

    def committed(self) -> None:
        """Note that a batch is over."""
        self._open.clear()

    def drop(self, room_id: RoomId) -> None:
        """Forget what waits of a room."""
        self._decided_ms.pop(room_id, None)
        if room_id in self._rooms:
            self._release(room_id, [], set())

    def _is_due(self, room_id: RoomId, waiting: _Waiting) -> bool:
        statements = self._states.length(room_id)
        return (
            len(waiting.arrivals) * PART_OF_CONFIG >= statements
            or waiting.size >= MAX_GATHERED_BYTES_OF_ROOM
            or self._wait_ms(room_id) <= 0
        )

    def _wait_ms(self, room_id: RoomId) -> int:
        """Return how much of a room's pause is left. The more rooms wait, the longer each of them."""
        statements, decided_ms = self._states.length(room_id), self._decided_ms.get(room_id)
        if statements <= FREE_STATEMENTS or decided_ms is None:
            return 0
        elapsed = self._now_ms() - decided_ms
        pause = statements * PAUSE_MS_OF_STATEMENT * max(1, len(self._rooms))
        return pause - elapsed if elapsed >= 0 else 0

    def _release(self, room_id: RoomId, found: list[Arrival], names: set[str]) -> None:
        waiting = self._rooms.pop(room_id)
        self.size -= waiting.size
        self._open.add(room_id)
        found += waiting.arrivals.values()
        names |= waiting.refused


def _room_of(name: str) -> RoomId:
    """Return the room of a document's id, which is its second part; anything else for a document of no room."""
    return name.split("/", 2)[1] if "/" in name else ""

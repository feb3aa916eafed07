"""Tells of offices in the one log of events: who joins and leaves, and how each call has ended.

Whoever tells does not wait: what happened is written together, some moments later. A member that comes and goes, or
calls, faster than anybody reads would push all other events out of the log; what is beyond its share is counted, and
its next event says how many there were (``left_out``).
"""

from __future__ import annotations

import sqlite3
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

import anyio

from sublet.daemon.storage.event_log import EventLog, Recorder
from sublet.offices.ports import AskedOfComputer
from sublet.offices.seats import Seat
from sublet.protocol.canonical import JsonValue
from sublet.protocol.events import EventKind
from sublet.protocol.offices.names import ClientEvent
from sublet.protocol.text import clean_line
from sublet.stop_time import within

MAX_WAITING: Final = 4_096
"""Events that are not written yet; beyond it they are left out."""
MAX_BATCH: Final = 256
GATHER_SECONDS: Final = 0.05
"""Between two transactions."""
LAST_SECONDS: Final = 1.0
"""For one transaction, and for what is left when the daemon stops."""
MOVES_AT_ONCE: Final = 60.0
MOVES_PER_SECOND: Final = 1.0
CALLS_AT_ONCE: Final = 1_000.0
CALLS_PER_SECOND: Final = 10.0
MAX_SHARES: Final = 4_096
"""Members of which is known how much they have told of late; the one that was quiet for longest is forgotten."""
MAX_SHOWN_CHARS: Final = 200


@dataclass(slots=True)
class _Share:
    left: float
    at: float
    left_out: int = 0


class OfficeNews:
    """Takes note at once, and writes while ``serve`` runs.

    Args:
        events: the log.
        clock: returns monotonic seconds.
    """

    def __init__(self, events: EventLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._clock = clock
        self._waiting: deque[tuple[EventKind, dict[str, JsonValue]]] = deque()
        self._wake = anyio.Event()
        self._shares: OrderedDict[tuple[str, str, EventKind], _Share] = OrderedDict()

    def moved(self, seat: Seat, why: str | None) -> None:
        """Tell that a member has joined, or, where ``why`` says so, has left."""
        about: dict[str, JsonValue] = {"member": seat.name, "role": str(seat.role)}
        kind = EventKind.OFFICE_JOINED if why is None else EventKind.OFFICE_LEFT
        self._add(kind, seat, about if why is None else {**about, "why": why})

    def called(self, asked: AskedOfComputer, error: str | None, seconds: float) -> None:
        """Tell how a call has ended; ``error`` is None where its Computer has answered."""
        upload = asked.event is ClientEvent.PUT_BLOB
        about: dict[str, JsonValue] = {
            "agent": asked.agent.name,
            "computer": asked.computer,
            "tool": "put_blob" if upload else clean_line(asked.tool, MAX_SHOWN_CHARS),
            "outcome": "done" if error is None else "failed",
            "ms": round(seconds * 1_000),
        }
        told = about if error is None else {**about, "error": clean_line(error, MAX_SHOWN_CHARS)}
        self._add(EventKind.OFFICE_CALL, asked.agent, told)

    async def serve(self) -> None:
        """Write what has happened until cancelled, and what is left then."""
        try:
            while True:
                self._wake = anyio.Event()
                await self._write()  # at first, what could not be written before this service failed
                await self._wake.wait()
                await anyio.sleep(GATHER_SECONDS)
        finally:
            with anyio.move_on_after(within(LAST_SECONDS), shield=True):
                await self._write()

    def _add(self, kind: EventKind, seat: Seat, data: Mapping[str, JsonValue]) -> None:
        share = self._share(kind, seat)
        if share.left < 1 or len(self._waiting) >= MAX_WAITING:
            share.left_out += 1
            return
        share.left -= 1
        more: dict[str, JsonValue] = {"left_out": share.left_out} if share.left_out else {}
        share.left_out = 0
        self._waiting.append((kind, {"office_id": seat.office_id, "office": seat.office, **data, **more}))
        self._wake.set()

    def _share(self, kind: EventKind, seat: Seat) -> _Share:
        calls = kind is EventKind.OFFICE_CALL
        most, rate = (CALLS_AT_ONCE, CALLS_PER_SECOND) if calls else (MOVES_AT_ONCE, MOVES_PER_SECOND)
        key = (seat.office_id, seat.name, EventKind.OFFICE_CALL if calls else EventKind.OFFICE_JOINED)
        now = self._clock()
        share = self._shares.pop(key, None) or _Share(most, now)
        share.left, share.at = min(most, share.left + (now - share.at) * rate), now
        self._shares[key] = share
        if len(self._shares) > MAX_SHARES:
            self._shares.popitem(last=False)
        return share

    async def _write(self) -> None:
        while self._waiting:
            batch = list(islice(self._waiting, MAX_BATCH))
            # A stop does not cut it off: what was written by then would be written once more.
            with anyio.move_on_after(within(LAST_SECONDS), shield=True):
                await self._events.transact(partial(_record, batch))
            # Only now: what could not be written is tried again.
            for _ in batch:
                self._waiting.popleft()


def _record(batch: Sequence[tuple[EventKind, dict[str, JsonValue]]], _: sqlite3.Connection, recorder: Recorder) -> None:
    for kind, data in batch:
        recorder.add(kind, None, data)

"""The connections of offices as the transport sees them: who is known yet, and how much each may send and be owed.

A line is one Engine.IO session, over whatever connections it comes. A stranger, which has shown no token yet, may send
little, has a few seconds, and gives way to the next one where there are many.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from typing import Final

import anyio
import structlog

from sublet.office_server.loop_time import AtWork, nobody_waits
from sublet.office_server.openings import Openings
from sublet.turns import Turnstile

MAX_STRANGERS: Final = 64
STRANGER_SECONDS: Final = 10.0
STRANGER_BYTES: Final = 16 << 10
STRANGER_FRAMES: Final = 16
"""In all, tokens that it tries among them; a client sends three at most before it is known."""
MAX_FRAME_BYTES: Final = 16 << 20
"""Of one frame of a member; a larger one ends its connection."""
FRAMES_PER_SECOND: Final = 500.0
FRAMES_AT_ONCE: Final = 1_000.0
BYTES_PER_SECOND: Final = 16 << 20
BYTES_AT_ONCE: Final = 64 << 20
LOOP_PART: Final = 1 / 16
LOOP_AT_ONCE: Final = 0.25
"""Seconds for which the loop works for one member at once, while others are at work, and the part of it after that."""
FRAME_SECONDS: Final = 0.0004
"""What the library does for a frame, and the kernel, beyond what is measured."""
BYTE_SECONDS: Final = 4e-9
"""The same for a byte of it."""
MAX_OWED_BYTES: Final = 32 << 20
"""What waits to be read by one member; beyond it, its connection is ended."""
MAX_CARRIERS: Final = 4
"""WebSockets of one session, one after another: a client upgrades once."""
MAX_HOLDERS: Final = 1_024
"""Of tokens whose pace is remembered; the longest away are forgotten."""
PACKET_BYTES: Final = 512
"""What a packet that waits costs besides its text."""

log = structlog.get_logger(__name__)
_LINE: ContextVar[Line | None] = ContextVar("line", default=None)


class Pace:
    """How fast one member may send: frames, bytes and time of the loop, which come back. What it costs others counts.

    Args:
        at_work: who else has had the loop work for it.
    """

    def __init__(self, at_work: AtWork | None = None) -> None:
        self._at_work = at_work or AtWork()
        self._frames, self._bytes, self._at = FRAMES_AT_ONCE, float(BYTES_AT_ONCE), anyio.current_time()
        self._seconds = LOOP_AT_ONCE

    def spend(self, frames: float, size: int = 0) -> None:
        """Count what was sent, or what had to be sent to others for it."""
        self._refill()
        self._frames -= frames
        self._bytes -= size
        self._spend_seconds(frames * FRAME_SECONDS + size * BYTE_SECONDS)

    def worked(self, seconds: float) -> None:
        """Count for how many seconds the loop has worked for it."""
        self._refill()
        self._spend_seconds(seconds)

    async def wait(self) -> None:
        """Return once it may send again."""
        self._refill()
        lacking = max(-self._frames / FRAMES_PER_SECOND, -self._bytes / BYTES_PER_SECOND)
        behind = self._seconds < 0
        if behind and self._at_work.crowded:
            lacking = max(lacking, -self._seconds / LOOP_PART)
        if lacking > 0:
            await anyio.sleep(lacking)
        if behind:  # leases, rooms and all else of the daemon come first, whoever else is in an office
            await nobody_waits()

    def over(self) -> None:
        """Take note that nothing comes from it any more."""
        self._at_work.forget(self)

    def _spend_seconds(self, seconds: float) -> None:
        # While nobody else was at work it owed nothing to anybody, however long that was.
        self._seconds = max(-LOOP_AT_ONCE, self._seconds - seconds)
        self._at_work.note(self)

    def _refill(self) -> None:
        now = anyio.current_time()
        passed, self._at = now - self._at, now
        self._frames = min(FRAMES_AT_ONCE, self._frames + passed * FRAMES_PER_SECOND)
        self._bytes = min(float(BYTES_AT_ONCE), self._bytes + passed * BYTES_PER_SECOND)
        self._seconds = min(LOOP_AT_ONCE, self._seconds + passed * LOOP_PART)


class Line:
    """One Engine.IO session, or the request that is to open one.

    Args:
        address: from which it comes.
        lines: all others.
    """

    def __init__(self, address: str = "", lines: Lines | None = None) -> None:
        self.session = ""
        self.since = anyio.current_time()
        self._address = address
        self._openings = None if lines is None else lines.openings
        self._lines = lines
        self.pace = Pace(None if lines is None else lines.at_work)
        self.next_ping: asyncio.Task[object] | None = None
        """What the library has begun for it, and would keep for half a minute after its end."""
        self.waiting: asyncio.Queue[object] | None = None
        """What the library has for it that has not left yet."""
        self.owed = 0
        """What was handed over for it and has not left yet: bytes, and ``PACKET_BYTES`` for each packet."""
        self.over = False
        """Whether it has to end, also where it polls and has nothing that could be ended at once."""
        self.busy: set[str] = set()
        """Methods of its HTTP requests that are being answered: one of each at a time, as Engine.IO has it."""
        self._carried, self._carriers = False, 0
        self._grow: Callable[[], None] | None = None
        self._abort: Callable[[], None] | None = None
        self._known = False
        self._tried = 0

    @property
    def known(self) -> bool:
        """Whether it has shown a token."""
        return self._known

    @property
    def most_bytes(self) -> int:
        """Of one frame or body."""
        return MAX_FRAME_BYTES if self._known else STRANGER_BYTES

    def carried_by(self, grow: Callable[[], None] | None, abort: Callable[[], None] | None) -> bool:
        """Take a WebSocket: ``grow`` lets it take larger frames, once the line is known; ``abort`` ends it at once.

        False is returned where it has one, or has had too many: what is not held here could not be ended.
        """
        if self._carried or self._carriers >= MAX_CARRIERS:
            return False
        self._carried = True
        self._carriers += 1
        self._grow, self._abort = grow, abort
        if self._known and grow is not None:
            grow()
        return True

    def dropped(self) -> None:
        """Take note that its WebSocket is over."""
        self._carried, self._grow, self._abort = False, None, None

    def may_try(self) -> bool:
        """Count a frame of a stranger; False where it has sent too many."""
        self._tried += 1
        return self._tried <= STRANGER_FRAMES

    def become_known(self, holder: str = "") -> None:
        """Take note that it has shown a token, which is known by ``holder``: one pace is that of all who show it."""
        self._known, self._tried = True, 0
        if self._lines is not None and holder:
            self.pace.over()
            self.pace = self._lines.pace_of(holder)
        if self._openings is not None:
            self._openings.known(self._address)
        if self._grow is not None:
            self._grow()

    def become_strange(self) -> None:
        """Take note that it has given up what its token was good for."""
        self._known, self.since = False, anyio.current_time()

    def drop(self) -> None:
        """Drop what has not left yet, once it is over: it would be kept until Python looks for circles."""
        while self.waiting is not None and not self.waiting.empty():
            self.waiting.get_nowait()

    def abort(self) -> None:
        """End it, its WebSocket at once, whatever still waits to be read."""
        self.over = True
        if self._abort is not None:
            self._abort()

    def owe(self, size: int) -> bool:
        """Count a packet of ``size`` bytes that is to leave; False where it reads too little, and is ended for it."""
        if not self.has_room(size):
            return False
        self.owed += size + PACKET_BYTES
        return True

    def has_room(self, size: int) -> bool:
        """Tell whether it reads enough for a packet of ``size`` bytes more; where it does not, it is ended."""
        if self.owed + size + PACKET_BYTES <= MAX_OWED_BYTES:
            return True
        log.warning("a member of an office does not read what it is sent", bytes=self.owed)
        self.abort()
        return False

    def left(self, size: int, packets: int = 1) -> None:
        """Count packets of ``size`` bytes together that have left."""
        self.owed = max(0, self.owed - size - packets * PACKET_BYTES)


def works_for(line: Line) -> None:
    """Take note for whom this task works, and whatever it starts."""
    _LINE.set(line)


def worked_for() -> Line | None:
    """Return for whom this task works."""
    return _LINE.get()


class Lines:
    """All lines, by the id of their session."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self.openings = Openings()
        self.turnstile = Turnstile()
        self.at_work = AtWork()
        self._paces: OrderedDict[str, Pace] = OrderedDict()

    def begin(self, address: str) -> Line | None:
        """Return a line for a session that is to begin; None where it may not begin now."""
        return Line(address, self) if self.openings.may_open(address) else None

    def pace_of(self, holder: str) -> Pace:
        """Return the pace of whoever holds a token: who comes again has what is left of it, and not a new one."""
        pace = self._paces.pop(holder, None) or Pace(self.at_work)
        self._paces[holder] = pace
        if len(self._paces) > MAX_HOLDERS:
            self._paces.popitem(last=False)
        return pace

    def opened(self, session: str, line: Line) -> None:
        """Take a line whose session has begun."""
        line.session = session
        self._lines[session] = line

    def closed(self, session: str) -> None:
        """Forget a line."""
        line = self._lines.pop(session, None)
        if line is not None:
            line.pace.over()
            if line.next_ping is not None:
                line.next_ping.cancel()

    def get(self, session: str) -> Line | None:
        """Return the line of a session; None for one that nobody has, or that is over."""
        return self._lines.get(session)

    def overdue(self) -> list[str]:
        """Return the sessions that have to go: those that are over, and strangers that are too old or too many."""
        strangers = sorted((one for one in self._lines.values() if not one.known), key=lambda one: one.since)
        now = anyio.current_time()
        too_many = max(0, len(strangers) - MAX_STRANGERS)
        old = [one.session for one in strangers[too_many:] if now - one.since >= STRANGER_SECONDS]
        over = [one.session for one in self._lines.values() if one.over]
        return over + [one.session for one in strangers[:too_many]] + old

    def sessions(self) -> list[str]:
        """Return the ids of all sessions."""
        return list(self._lines)

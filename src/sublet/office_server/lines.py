"""The connections of offices as the transport sees them: who is known yet, and how much each may send and be owed.

A line is one Engine.IO session, over whatever connections it comes. A stranger, which has shown no token yet, may send
little, has a few seconds, and gives way to the next one where there are many.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio
import structlog

MAX_STRANGERS: Final = 64
STRANGER_SECONDS: Final = 10.0
STRANGER_BYTES: Final = 16 << 10
STRANGER_FRAMES: Final = 16
"""In all, tokens that it tries among them; a client sends three at most before it is known."""
SESSIONS_PER_SECOND: Final = 100.0
SESSIONS_AT_ONCE: Final = 400.0
"""New sessions, of all clients together: the library keeps something of each for half a minute."""
MAX_FRAME_BYTES: Final = 16 << 20
"""Of one frame of a member; a larger one ends its connection."""
FRAMES_PER_SECOND: Final = 500.0
FRAMES_AT_ONCE: Final = 1_000.0
BYTES_PER_SECOND: Final = 16 << 20
BYTES_AT_ONCE: Final = 64 << 20
MAX_OWED_BYTES: Final = 64 << 20
"""What waits to be read by one member; beyond it, its connection is ended."""
MAX_CARRIERS: Final = 4
"""WebSockets of one session, one after another: a client upgrades once."""
PACKET_BYTES: Final = 512
"""What a packet that waits costs besides its text."""

log = structlog.get_logger(__name__)


class Pace:
    """How fast one line may send: frames and bytes that come back with time. What it costs others counts as well."""

    def __init__(self) -> None:
        self._frames, self._bytes, self._at = FRAMES_AT_ONCE, float(BYTES_AT_ONCE), anyio.current_time()

    def spend(self, frames: float, size: int = 0) -> None:
        """Count what was sent, or what had to be sent to others for it."""
        self._refill()
        self._frames -= frames
        self._bytes -= size

    async def wait(self) -> None:
        """Return once it may send again."""
        self._refill()
        lacking = max(-self._frames / FRAMES_PER_SECOND, -self._bytes / BYTES_PER_SECOND)
        if lacking > 0:
            await anyio.sleep(lacking)

    def _refill(self) -> None:
        now = anyio.current_time()
        passed, self._at = now - self._at, now
        self._frames = min(FRAMES_AT_ONCE, self._frames + passed * FRAMES_PER_SECOND)
        self._bytes = min(float(BYTES_AT_ONCE), self._bytes + passed * BYTES_PER_SECOND)


class Line:
    """One Engine.IO session, or the request that is to open one."""

    def __init__(self) -> None:
        self.session = ""
        self.since = anyio.current_time()
        self.pace = Pace()
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

    def become_known(self) -> None:
        """Take note that it has shown a token."""
        self._known, self._tried = True, 0
        if self._grow is not None:
            self._grow()

    def become_strange(self) -> None:
        """Take note that it has given up what its token was good for."""
        self._known, self.since = False, anyio.current_time()

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


class Lines:
    """All lines, by the id of their session."""

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._may_open, self._at = SESSIONS_AT_ONCE, anyio.current_time()

    def may_open(self) -> bool:
        """Tell whether one more session may begin now."""
        now = anyio.current_time()
        passed, self._at = now - self._at, now
        self._may_open = min(SESSIONS_AT_ONCE, self._may_open + passed * SESSIONS_PER_SECOND)
        if self._may_open < 1:
            return False
        self._may_open -= 1
        return True

    def opened(self, session: str, line: Line) -> None:
        """Take a line whose session has begun."""
        line.session = session
        self._lines[session] = line

    def closed(self, session: str) -> None:
        """Forget a line."""
        self._lines.pop(session, None)

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

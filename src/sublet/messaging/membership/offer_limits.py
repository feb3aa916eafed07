"""How much of what daemons tell of rooms is looked at, and which rooms were left out; on the event loop."""

from __future__ import annotations

import time
from collections import deque
from typing import Final

from sublet.protocol.ezagent.ids import RoomId

MAX_READ_OF_DAEMON: Final = 128
"""Invitations of one daemon that are read in ``WINDOW_SECONDS``; the others are looked at later."""
WINDOW_SECONDS: Final = 3_600.0
MAX_LEFT_OUT_OF_DAEMON: Final = 4_096
"""Rooms of one daemon that were left out and are not told of again; of more, whatever comes is left out each time."""
LEFT_OUT_SECONDS: Final = 600.0
"""After which what was left out is looked at again: who names a room of another's can't keep it out for longer."""
MAX_DAEMONS: Final = 1_024


class OfferLimits:
    """Counts for each daemon what it makes this one read."""

    def __init__(self) -> None:
        self._read: dict[str, deque[float]] = {}
        self._left_out: dict[str, set[RoomId]] = {}
        self._since = time.monotonic()

    def left_out(self) -> set[RoomId]:
        """Return the rooms of which nobody needs to tell again for now."""
        now = time.monotonic()
        if now - self._since > LEFT_OUT_SECONDS:
            self._left_out.clear()
            self._since = now
        return set[RoomId]().union(*self._left_out.values())

    def may_read(self, home: str) -> bool:
        """Tell whether one more invitation of a daemon is read, and count it."""
        now = time.monotonic()
        if home not in self._read and len(self._read) >= MAX_DAEMONS:
            self._read.pop(next(iter(self._read)))
        times = self._read.setdefault(home, deque())
        while times and now - times[0] > WINDOW_SECONDS:
            times.popleft()
        if len(times) >= MAX_READ_OF_DAEMON:
            return False
        times.append(now)
        return True

    def may_read_again(self, home: str) -> bool:
        """Tell whether another config of a room that waits is read, and count it: new ones are counted apart."""
        return self.may_read(f"{home} again")

    def leave_out(self, room_id: RoomId, home: str) -> None:
        """Note a room that is not looked at."""
        if home not in self._left_out and len(self._left_out) >= MAX_DAEMONS:
            self._left_out.pop(next(iter(self._left_out)))
        rooms = self._left_out.setdefault(home, set())
        if len(rooms) < MAX_LEFT_OUT_OF_DAEMON:
            rooms.add(room_id)

    def has_room(self, home: str) -> None:
        """Look again at what a daemon tells of: there is room for an invitation of it."""
        self._left_out.pop(home, None)

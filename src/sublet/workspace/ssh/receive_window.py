"""Lets a client send as much on a channel as there is room for what it has sent already.

asyncssh opens a channel's window to the full whenever it hands one piece of input on, whatever else waits in its own
buffer or with us. So a client whose requests take long, and are worked off a few bytes at a time, could have any number
of windows' bytes kept. Here the window is opened by what has been worked off, and by nothing else: what was received
and waits, wherever it waits, and what may still come are never more than one window together.

A window begins small and grows while its client uses it up, so that the many channels on which little is sent cost
little, and one on which much is sent over a long way is not held up. What windows have grown by comes from a room that
channels of one peer share; where others grow as well, a window shrinks again as what was sent is worked off.

Weak: that takes private parts of asyncssh (``ssh.inner``). Where another version has none of that name, asyncssh does
as it always does, and ``sublet doctor`` says so. A window shrinks only when its client sends something: what was
granted stays so.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import asyncssh

from sublet.workspace.ssh.inner import open_window, steer_window

LEAST_WINDOW: Final = 384 * 1024
"""Bytes of each window at first: 4/3 of the largest request, since the beginning of one can't be worked off."""
MOST_WINDOW: Final = 2 * 1024 * 1024
"""Bytes beyond which no window grows."""
GROW_SECONDS: Final = 1.0
"""A window that is used up within this time grows: no way to a client and back takes longer."""
_PART: Final = 4
"""The window is opened again once a part of this size of it has been worked off, so that few packets say so."""


class WindowRoom:
    """What the windows of one peer may have grown by together, in equal shares.

    Args:
        limit: bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.windows = 0
        """Windows that have grown, or would."""

    @property
    def share(self) -> int:
        """Return the bytes that each of them may have."""
        return self.limit // max(self.windows, 1)

    def take(self, most: int) -> int:
        """Count as many of ``most`` bytes as are left, and return them."""
        taken = max(min(most, self.limit - self.held), 0)
        self.held += taken
        return taken

    def give(self, size: int) -> None:
        """Count ``size`` bytes less."""
        self.held -= size


class ReceiveWindow:
    """The window of one channel that is open.

    Args:
        channel: was opened with a window of ``LEAST_WINDOW``, and nothing has arrived on it.
        room: what it may grow by, and others with it.
        now: the clock.
    """

    def __init__(
        self,
        channel: asyncssh.SSHServerChannel[bytes],
        room: WindowRoom,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._channel = channel
        self._room = room
        self._now = now
        self._grown = 0
        self._counts = False  # as one of the windows that share the room
        self._granted = LEAST_WINDOW
        self._delivered = 0
        self._measured_at = now()
        self._measured_from = 0
        self._steered = steer_window(channel)

    @property
    def size(self) -> int:
        """Return how many bytes may wait and come together."""
        return LEAST_WINDOW + self._grown

    def delivered(self, size: int) -> None:
        """Take note that ``size`` bytes were handed on by asyncssh."""
        self._delivered += size

    def open_for(self, kept: int) -> None:
        """Let the client send what there is room for.

        Args:
            kept: bytes that were handed on and are not worked off.
        """
        if not self._steered or self._channel.is_closing():
            return
        if self._delivered - self._measured_from >= self.size:
            self._grow()
        room = self.size - kept - (self._granted - self._delivered)
        if self._grown > self._room.share:
            less = min(room, self._grown - self._room.share)
            self._grown -= less
            self._room.give(less)
            room -= less
        if room >= self.size // _PART:
            self._granted += room
            open_window(self._channel, room)

    def close(self) -> None:
        """Give back what it has grown by: nothing of the channel is kept any more. Idempotent."""
        self._steered = False
        self._room.give(self._grown)
        self._room.windows -= self._counts
        self._grown, self._counts = 0, False

    def _grow(self) -> None:
        """Grow, as far as there is room, where the client has used up a whole window in little time."""
        now = self._now()
        if now - self._measured_at <= GROW_SECONDS and self.size < MOST_WINDOW:
            if not self._counts:
                self._counts = True
                self._room.windows += 1
            wanted = min(self.size, MOST_WINDOW - self.size, self._room.share - self._grown)
            self._grown += self._room.take(wanted)
        self._measured_at, self._measured_from = now, self._delivered

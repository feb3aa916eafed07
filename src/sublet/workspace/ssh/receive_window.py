"""Lets a client send as much on a channel as there is room for what it has sent already.

asyncssh opens a channel's window to the full whenever it hands one piece of input on, whatever else waits in its own
buffer or with us. So a client whose requests take long, and are worked off a few bytes at a time, could have any number
of windows' bytes kept. Here the window is opened by what has been worked off, and by nothing else: what was received
and waits, wherever it waits, and what may still come are never more than one window together.

Weak: these are private parts of asyncssh. Where another version has none of that name, asyncssh does as it always does;
the tests of this module then fail.
"""

from __future__ import annotations

from typing import Any, Final

import asyncssh

MSG_CHANNEL_WINDOW_ADJUST: Final = 93
"""RFC 4254, section 5.2."""
_PART: Final = 4
"""The window is opened again once a part of this size of it has been worked off, so that few packets say so."""


class ReceiveWindow:
    """The window of one channel that is open.

    Args:
        channel: was opened with a window of ``size``, and nothing has arrived on it.
        size: bytes; 4/3 of the largest request at least, since the beginning of one can't be worked off.
    """

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], size: int) -> None:
        self._channel: Any = channel
        self._size = size
        self._granted = size
        self._delivered = 0
        self._steered = hasattr(channel, "_init_recv_window") and hasattr(channel, "_recv_window")
        if self._steered:
            self._channel._init_recv_window = 0  # below which asyncssh opens it by itself: never

    def delivered(self, size: int) -> None:
        """Take note that ``size`` bytes were handed on by asyncssh."""
        self._delivered += size

    def open_for(self, kept: int) -> None:
        """Let the client send what there is room for.

        Args:
            kept: bytes that were handed on and are not worked off.
        """
        room = self._size - kept - (self._granted - self._delivered)
        if self._steered and room >= self._size // _PART and not self._channel.is_closing():
            self._granted += room
            self._channel._recv_window += room
            self._channel.send_packet(MSG_CHANNEL_WINDOW_ADJUST, room.to_bytes(4, "big"))

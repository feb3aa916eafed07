"""Lets a client send as much on a channel as there is room for what it has sent already.

asyncssh opens a channel's window to the full whenever it hands one piece of input on, whatever else waits in its own
buffer or with us. So a client whose requests take long, and are worked off a few bytes at a time, could have any number
of windows' bytes kept. Here the window is opened by what has been worked off, and by nothing else: what was received
and waits, wherever it waits, and what may still come are never more than one window together.

Weak: that takes private parts of asyncssh (``ssh.inner``). Where another version has none of that name, asyncssh does
as it always does, and ``sublet doctor`` says so.
"""

from __future__ import annotations

from typing import Final

import asyncssh

from sublet.workspace.ssh.inner import open_window, steer_window

_PART: Final = 4
"""The window is opened again once a part of this size of it has been worked off, so that few packets say so."""


class ReceiveWindow:
    """The window of one channel that is open.

    Args:
        channel: was opened with a window of ``size``, and nothing has arrived on it.
        size: bytes; 4/3 of the largest request at least, since the beginning of one can't be worked off.
    """

    def __init__(self, channel: asyncssh.SSHServerChannel[bytes], size: int) -> None:
        self._channel = channel
        self._size = size
        self._granted = size
        self._delivered = 0
        self._steered = steer_window(channel)

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
            open_window(self._channel, room)

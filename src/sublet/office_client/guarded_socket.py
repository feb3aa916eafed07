"""A WebSocket to the server of an office, with bounds on what is no message.

The library answers pings whoever reads the answers, gathers parts of a message whatever there are of them, and parses
all of what has come at once.
"""

from __future__ import annotations

from typing import Any, Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.frames import Frame, Opcode

FRAMES_AT_ONCE: Final = 1_000.0
FRAMES_PER_SECOND: Final = 100.0
"""Pings, and parts of messages below ``LARGE_PART_BYTES``; what is beyond ends the connection."""
LARGE_PART_BYTES: Final = 1 << 10
"""A part of a message of so many bytes costs no more than its bytes, which are bounded."""
PIECE_BYTES: Final = 8 << 10
"""What is parsed at one time: a frame is two bytes at least."""


class GuardedSocket(ClientConnection):
    """A connection that a server can't fill with frames that mean nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._left, self._at = FRAMES_AT_ONCE, self.loop.time()

    def data_received(self, data: bytes) -> None:
        """Parse what has come, until there is too much of nothing."""
        for begin in range(0, len(data), PIECE_BYTES):
            if self.transport.is_closing():
                return
            super().data_received(data[begin : begin + PIECE_BYTES])

    def process_event(self, event: Any) -> None:
        """Take a frame, which counts unless it is a whole message or a large part of one."""
        if isinstance(event, Frame) and not _is_message(event):
            now = self.loop.time()
            self._left = min(FRAMES_AT_ONCE, self._left + (now - self._at) * FRAMES_PER_SECOND) - 1
            self._at = now
            if self._left < 0:
                self.transport.abort()
                return
        super().process_event(event)


class GuardedConnect(connect):
    """Makes such a connection, and follows no redirects: a server says where to go in its own name alone."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, create_connection=GuardedSocket, **options)

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Follow none."""
        return exc


def _is_message(frame: Frame) -> bool:
    whole = frame.fin and frame.opcode in (Opcode.TEXT, Opcode.BINARY)
    return whole or len(frame.data) >= LARGE_PART_BYTES

"""uvicorn's WebSocket with bounds of ours: a stranger's message is small, and what is no message is bounded too.

uvicorn answers pings and gathers parts of a message whatever there are of them, and reads all of what has come at once.
"""

from __future__ import annotations

import weakref
from contextlib import suppress
from functools import partial
from typing import Any, Final

import uvicorn

from sublet.office_server.lines import FRAMES_AT_ONCE, FRAMES_PER_SECOND, MAX_FRAME_BYTES, STRANGER_BYTES
from sublet.protocol.errors import LocalCode, SubletError

GROW_KEY: Final = "frames_may_grow"
"""In ``scope["state"]``: what lets this WebSocket take the frames of a member."""
ABORT_KEY: Final = "connection_abort"
"""In ``scope["state"]``: what ends this WebSocket at once."""
PIECE_BYTES: Final = 8 << 10
"""What is parsed at one time: a frame is six bytes at least."""
MAX_QUEUED: Final = 64
"""Messages that wait to be handled; nothing more is parsed meanwhile, but for what one piece holds."""
LARGE_PART_BYTES: Final = 1 << 10
"""A part of a message of so many bytes costs no more than its bytes, which are bounded."""
MAX_PARTS: Final = MAX_FRAME_BYTES // LARGE_PART_BYTES


def growing_web_socket() -> type[Any]:
    """Return the class of WebSockets that an office's server uses.

    Raises:
        SubletError: ``UNAVAILABLE``: this version of uvicorn has nothing whose frames could be bounded.
    """
    try:
        from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
    except ImportError:
        raise SubletError(
            LocalCode.UNAVAILABLE,
            f"uvicorn {uvicorn.__version__} lacks the WebSockets whose frames we bound",
            "Install the version that requirements.lock names.",
        ) from None

    class GrowingWebSocket(WebSocketsSansIOProtocol):
        """A WebSocket of an office."""

        def __init__(
            self, config: uvicorn.Config, server_state: Any, app_state: dict[str, Any], _loop: Any = None
        ) -> None:
            # A line outlives it now and then, and so does what the library has of it.
            me = weakref.ref(self)
            more = {GROW_KEY: partial(_grow, me), ABORT_KEY: partial(_abort, me)}
            super().__init__(config, server_state, {**app_state, **more}, _loop)
            self._bound(STRANGER_BYTES)
            self._unread = bytearray()
            self._may_send, self._at = FRAMES_AT_ONCE, self.loop.time()

        def data_received(self, data: bytes) -> None:
            """Parse what has come, as far as it can be handled."""
            self._unread += data
            self._parse()

        def connection_lost(self, error: Exception | None) -> None:
            """Keep nothing of what has come and is no message yet."""
            super().connection_lost(error)
            self._unread.clear()
            with suppress(Exception):  # whatever the library says of half a frame
                self.conn.receive_eof()

        async def receive(self) -> Any:
            """Return what has come next, and parse more."""
            message = await super().receive()
            self._parse()
            return message

        def handle_ping(self) -> None:
            """Answer a ping, unless the answers are not read: what is written waits without a bound."""
            if self._spare() and self.writable.is_set():
                super().handle_ping()
            else:
                self.conn.data_to_send()

        def handle_pong(self, event: Any) -> None:
            """Take an answer to a ping."""
            if self._spare():
                super().handle_pong(event)

        def handle_cont(self, event: Any) -> None:
            """Take a part of a message."""
            if len(self.frames) >= MAX_PARTS:
                self.transport.abort()
            elif len(event.data) >= LARGE_PART_BYTES or self._spare():
                super().handle_cont(event)

        def _parse(self) -> None:
            while (
                self._unread
                and (self.queue.qsize() < MAX_QUEUED or self.close_sent)
                and not self.transport.is_closing()
            ):
                piece = bytes(self._unread[:PIECE_BYTES])
                del self._unread[:PIECE_BYTES]
                super().data_received(piece)

        def _spare(self) -> bool:
            """Count a frame that is no message; too many of them end the connection."""
            now = self.loop.time()
            passed, self._at = now - self._at, now
            self._may_send = min(FRAMES_AT_ONCE, self._may_send + passed * FRAMES_PER_SECOND) - 1
            if self._may_send < 0:
                self.transport.abort()
            return self._may_send >= 0

        def _bound(self, most: int) -> None:
            """Set the most bytes of a message; the name of it differs between versions of the library."""
            setattr(self.conn, "max_message_size" if hasattr(self.conn, "max_message_size") else "max_size", most)

    return GrowingWebSocket


def _grow(web_socket: weakref.ref[Any]) -> None:
    if (there := web_socket()) is not None:
        there._bound(MAX_FRAME_BYTES)


def _abort(web_socket: weakref.ref[Any]) -> None:
    if (there := web_socket()) is not None:
        there.transport.abort()

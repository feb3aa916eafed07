"""uvicorn's WebSocket with a bound that grows once its caller is known: a stranger's frame is small."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from sublet.office_server.lines import MAX_FRAME_BYTES, STRANGER_BYTES

GROW_KEY: Final = "frames_may_grow"
"""In ``scope["state"]``: what lets this WebSocket take the frames of a member."""


ABORT_KEY: Final = "connection_abort"
"""In ``scope["state"]``: what ends this WebSocket at once."""


class GrowingWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket of an office."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, {**app_state, GROW_KEY: self.grow, ABORT_KEY: self.abort}, _loop)
        self._bound(STRANGER_BYTES)

    def grow(self) -> None:
        """Take the frames of a member from now on."""
        self._bound(MAX_FRAME_BYTES)

    def abort(self) -> None:
        """End the connection without a word."""
        self.transport.abort()

    def _bound(self, most: int) -> None:
        """Set the most bytes of a message; the name of it differs between versions of the library."""
        setattr(self.conn, "max_message_size" if hasattr(self.conn, "max_message_size") else "max_size", most)

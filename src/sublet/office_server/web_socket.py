"""uvicorn's WebSocket with a bound that grows once its caller is known: a stranger's frame is small."""

from __future__ import annotations

from typing import Any, Final

import uvicorn

from sublet.office_server.lines import MAX_FRAME_BYTES, STRANGER_BYTES
from sublet.protocol.errors import LocalCode, SubletError

GROW_KEY: Final = "frames_may_grow"
"""In ``scope["state"]``: what lets this WebSocket take the frames of a member."""
ABORT_KEY: Final = "connection_abort"
"""In ``scope["state"]``: what ends this WebSocket at once."""


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
            more = {GROW_KEY: lambda: self._bound(MAX_FRAME_BYTES), ABORT_KEY: lambda: self.transport.abort()}
            super().__init__(config, server_state, {**app_state, **more}, _loop)
            self._bound(STRANGER_BYTES)

        def _bound(self, most: int) -> None:
            """Set the most bytes of a message; the name of it differs between versions of the library."""
            setattr(self.conn, "max_message_size" if hasattr(self.conn, "max_message_size") else "max_size", most)

    return GrowingWebSocket

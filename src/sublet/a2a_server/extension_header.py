"""Tells a client which extensions are in force: the specification asks for it, the SDK leaves it out."""

from __future__ import annotations

from a2a.extensions.common import get_requested_extensions
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sublet.protocol.messages import AWCP_URI

_NAMES = (b"a2a-extensions", b"x-a2a-extensions")
"""The header of A2A 1.0 and that of 0.3; each is answered by its own."""


class EchoExtension:
    """ASGI middleware that repeats our extension in the answer to a request that asks for it.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        asked = [name for name in _NAMES if AWCP_URI in get_requested_extensions(headers.getlist(name.decode()))]

        async def echoing_send(message: Message) -> None:
            if message["type"] == "http.response.start" and asked:
                extra = [(name, AWCP_URI.encode()) for name in asked]
                message = {**message, "headers": [*message.get("headers", []), *extra]}
            await send(message)

        await self._app(scope, receive, echoing_send)

"""Bounds on what the body of a request may cost: its size and its time.

What comes here has no body at all, or says how long it is (``daemon.net.http_connection``), and the gate has decided
from the headers who asks: ``open_bytes`` is for those whom it does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sublet import deadlines
from sublet.a2a_server.caller import SCOPE_KEY, Caller
from sublet.a2a_server.json_rpc import LARGE_BYTES
from sublet.a2a_server.large_bodies import LargeBodies, Place
from sublet.a2a_server.refusal import http_error
from sublet.protocol.errors import LocalCode, SubletError

MAX_BODY_BYTES: Final = 2 << 20
"""Of a caller that is known."""
MAX_OPEN_BODY_BYTES: Final = 16 << 10
"""Of anybody else."""
MAX_BODY_SECONDS: Final = 10.0
_MAX_LENGTH_DIGITS: Final = 12


class _BodyRefused(Exception):
    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = SubletError(LocalCode.INVALID_ARGUMENT, message, hint)


class BoundedBodies:
    """Reads the whole body before the application sees the request, or refuses it.

    Args:
        app: what to protect.
        limits: most bytes per path; all other paths take ``MAX_BODY_BYTES``, of known callers alone.
    """

    def __init__(self, app: ASGIApp, limits: Mapping[str, int]) -> None:
        self._app = app
        self._limits = limits
        self._large = LargeBodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limits.get(scope["path"], MAX_BODY_BYTES)
        caller = cast("Caller | None", scope.get(SCOPE_KEY))
        if caller is None:
            limit = min(limit, MAX_OPEN_BODY_BYTES)
        place = self._large.place(caller.owner if caller else "")
        try:
            try:
                body = await _read(scope, receive, limit, place)
            except _BodyRefused as refused:
                # What is left of the body is not read, so the connection can't be used again.
                response = http_error(refused.status, refused.error, {"Connection": "close"})
                await response(scope, receive, send)
                return
            if body is not None:
                whole = _replay(body, receive)
                del body  # whoever reads it has the only one
                await self._app(scope, whole, place.until_answered(send))
        finally:
            place.give_back()


async def _read(scope: Scope, receive: Receive, limit: int, place: Place) -> bytes | None:
    too_large = _BodyRefused(413, "the request body is too large", f"At most {limit} bytes are accepted here.")
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    if not declared.isdigit() or len(declared) > _MAX_LENGTH_DIGITS or int(declared) > limit:
        raise too_large
    body = bytearray()
    try:
        async with deadlines.timeout(MAX_BODY_SECONDS):
            while True:
                if max(int(declared), len(body)) > LARGE_BYTES:
                    await place.take()
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > limit:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        if place.waits:
            raise _BodyRefused(
                503, "too many large requests of yours are under way", "Send them one after the other."
            ) from None
        raise _BodyRefused(
            408, "the request body came too slowly", f"Send it within {MAX_BODY_SECONDS:.0f} s."
        ) from None


def _replay(body: bytes, receive: Receive) -> Receive:
    unread: bytes | None = body

    async def replayed() -> Message:
        nonlocal unread
        if unread is not None:
            whole, unread = unread, None
            return {"type": "http.request", "body": whole, "more_body": False}
        return await receive()

    return replayed

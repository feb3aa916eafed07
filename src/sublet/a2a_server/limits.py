"""Bounds on what a request may cost: size, depth and time of its body."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sublet.a2a_server.refusal import http_error
from sublet.protocol.errors import LocalCode, SubletError

MAX_BODY_BYTES = 2 << 20
MAX_BODY_SECONDS = 10.0
MAX_DEPTH = 48
"""JSON nesting of a whole request; an AWCP message may use 32 of it."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""Also as three bytes of their own, which are no UTF-8, but which ``json.loads`` takes for it."""
_BRACKET = re.compile(rb"[\[\]{}]")


class _BodyRefused(Exception):
    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(message)
        self.status = status
        self.error = SubletError(LocalCode.INVALID_ARGUMENT, message, hint)


class BoundedBodies:
    """Reads the whole body before the application sees the request, or refuses it.

    Args:
        app: what to protect.
        limits: most bytes per path; all other paths take ``MAX_BODY_BYTES``.
    """

    def __init__(self, app: ASGIApp, limits: Mapping[str, int]) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limits.get(scope["path"], MAX_BODY_BYTES)
        try:
            body = await _read(scope, receive, limit)
        except _BodyRefused as refused:
            # What is left of the body is not read, so the connection can't be used again.
            response = http_error(refused.status, refused.error, {"Connection": "close"})
            await response(scope, receive, send)
            return
        if body is None:
            return
        await self._app(scope, _replay(body, receive), send)


def too_deep(body: bytes, limit: int = MAX_DEPTH) -> bool:
    """Tell whether the JSON text ``body`` nests deeper than ``limit``, without building anything from it."""
    if body.count(b"[") + body.count(b"{") <= limit:
        return False
    depth = 0
    for bracket in _BRACKET.finditer(_STRING.sub(b"", body)):
        depth += 1 if bracket.group() in b"[{" else -1
        if depth > limit:
            return True
    return False


async def _read(scope: Scope, receive: Receive, limit: int) -> bytes | None:
    declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
    too_large = _BodyRefused(413, "the request body is too large", f"At most {limit} bytes are accepted here.")
    if not declared.isdigit() or int(declared[:20]) > limit:
        raise too_large
    body = bytearray()
    try:
        with anyio.fail_after(MAX_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                if len(body) > limit:
                    raise too_large
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        raise _BodyRefused(
            408, "the request body came too slowly", f"Send it within {MAX_BODY_SECONDS:.0f} s."
        ) from None
    if too_deep(bytes(body)):
        raise _BodyRefused(400, "the request is nested too deeply", f"At most {MAX_DEPTH} levels are accepted.")
    if _half_characters(bytes(body)):
        raise _BodyRefused(400, "the request holds half of a surrogate pair", "Send whole characters.")
    return bytes(body)


def _half_characters(body: bytes) -> bool:
    """Tell whether the JSON text ``body`` holds half of a surrogate pair: writing it out again would fail."""
    if not _SURROGATE.search(body):
        return False
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except ValueError:
        return False  # no JSON, as the application will say
    return False


def _replay(body: bytes, receive: Receive) -> Receive:
    unread = True

    async def replayed() -> Message:
        nonlocal unread
        if unread:
            unread = False
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replayed

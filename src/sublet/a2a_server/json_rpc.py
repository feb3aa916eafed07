"""What is no request at all, answered as JSON-RPC 2.0 section 5.1 or A2A's REST binding wants, before the SDK sees it.

The SDK calls some of it an internal error, which tells an honest caller to look for the fault with us.
"""

from __future__ import annotations

import asyncio
from typing import Final

from a2a.utils.constants import PROTOCOL_VERSION_0_3, VERSION_HEADER
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import InvalidRequestError
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sublet.a2a_server.refusal import http_error
from sublet.protocol.bounded_json import BadJson, Why, parse_json
from sublet.protocol.errors import LocalCode, SubletError

MAX_DEPTH: Final = 48
"""JSON nesting of a whole request; an AWCP message may use 32 of it."""
MAX_VALUES: Final = 4_096
"""JSON values of a whole request. The SDK's reading of it costs some microseconds for each, on the event loop."""
PARSE_ERROR: Final = -32700
VERSION_NOT_SUPPORTED: Final = -32009
"""A2A 1.0, section 5.4."""
LARGE_BYTES: Final = 64 << 10
LARGE_VALUES: Final = 512
"""Bodies beyond either cost milliseconds, so no two are read in one turn of the loop, by us or by the SDK."""
STEP_SECONDS: Final = 0.1
"""From the reading of one large body to that of the next, by us or by the SDK. Reading takes up to a fourth of it. What
others ask for takes several turns of the loop, and each would wait for another large body."""
_OLD_METHODS: Final = ("message/", "tasks/", "agent/")
"""How the names of A2A 0.3 begin."""


class WellFormed:
    """ASGI middleware: answers a body that can't be read as JSON, or whose method is not of the version it names.

    Args:
        app: sees all else; whole bodies must come in one message, as from ``BoundedBodies``.
        path: where JSON-RPC is spoken.
        rest: below which path the REST binding is.
    """

    def __init__(self, app: ASGIApp, path: str, rest: str) -> None:
        self._app = app
        self._path = path
        self._rest = f"{rest}/"
        self._steps = _Steps()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or not self._is_spoken_at(scope["path"]):
            await self._app(scope, receive, send)
            return
        whole = await receive()
        body = whole.get("body", b"")
        version = Headers(scope=scope).get(VERSION_HEADER, "")
        large = is_large(body)
        if large:
            await self._steps.take()
        refusal = complaint(body, version) if scope["path"] == self._path else rest_complaint(body)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        unread = True

        async def again() -> Message:
            nonlocal unread
            if unread:
                unread = False
                if large:
                    await self._steps.take()  # the SDK reads it all as soon as it has it
                return whole
            return await receive()

        await self._app(scope, again, send)

    def _is_spoken_at(self, path: str) -> bool:
        return path == self._path or path.startswith(self._rest)


class _Steps:
    """Lets one large body after the other be read, with everybody else in between."""

    def __init__(self) -> None:
        self._waiting = asyncio.Lock()
        self._next = 0.0

    async def take(self) -> None:
        """Wait until the next one may be read."""
        loop = asyncio.get_running_loop()
        async with self._waiting:
            if (rest := self._next - loop.time()) > 0:
                await asyncio.sleep(rest)
            self._next = loop.time() + STEP_SECONDS


def is_large(body: bytes) -> bool:
    """Tell whether reading ``body`` takes milliseconds."""
    return len(body) > LARGE_BYTES or sum(map(body.count, (b",", b":", b"[", b"{"))) > LARGE_VALUES


def complaint(body: bytes, version: str) -> JSONResponse | None:
    """Return the answer to a body that is no request of ``version``, which may be empty; None where it may be one."""
    try:
        request = parse_json(body, depth=MAX_DEPTH, values=MAX_VALUES)
    except BadJson as error:
        if error.why in (Why.MALFORMED, Why.NOT_UTF8):
            return _error(None, PARSE_ERROR, "Parse error: the body is no JSON in UTF-8")
        return http_error(400, SubletError(LocalCode.INVALID_ARGUMENT, f"the request: {error}", "Send less at once."))
    method = request.get("method") if isinstance(request, dict) else None
    fits = not version or ".".join(version.split(".")[:2]) == PROTOCOL_VERSION_0_3
    if fits or not isinstance(method, str) or not method.startswith(_OLD_METHODS):
        return None
    assert isinstance(request, dict), "it has a method"
    told = request.get("id")
    known = told if isinstance(told, str | int) and not isinstance(told, bool) else None
    return _error(known, VERSION_NOT_SUPPORTED, f"{method} is a method of A2A 0.3, and {VERSION_HEADER} names another")


def rest_complaint(body: bytes) -> JSONResponse | None:
    """Return the answer to a body that is no JSON object, or too much of one; None where it may be a request.

    What is asked of a task that the path names needs no body.
    """
    if not body:
        return None
    try:
        request = parse_json(body, depth=MAX_DEPTH, values=MAX_VALUES)
    except BadJson as error:
        malformed = error.why in (Why.MALFORMED, Why.NOT_UTF8)
        return _rest_error("the body is no JSON in UTF-8" if malformed else f"the request: {error}; send less at once")
    return None if isinstance(request, dict) else _rest_error("the body is no JSON object")


def _rest_error(message: str) -> JSONResponse:
    return JSONResponse(build_rest_error_payload(InvalidRequestError(message=message)), status_code=400)


def _error(request_id: str | int | None, code: int, message: str) -> JSONResponse:
    return JSONResponse({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": message}})

"""One host's connection: newline-delimited JSON-RPC on a stream, bounded both ways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic_core import from_json

from sublet.mcp_server import era
from sublet.mcp_server.relay_session import KEPT_END, MAX_LINE, Lines, error_line, id_at_end, is_id, parse
from sublet.protocol.bounded_json import BadJson, Why, check_json
from sublet.supervisor.tool_server.line_server import Read, Write, serve_lines

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from mcp.server import InitializationOptions
    from mcp.server.lowlevel import Server

    from sublet.mcp_server.session import HostSession
    from sublet.turns import Turnstile
    from sublet.unix_sockets import UnixStream

CHUNK = 16_384
"""Read at once, which is a connection's turn of the loop."""
REFUSE_SECONDS = 2.0


async def serve_connection(
    stream: UnixStream,
    server: Server[HostSession],
    session: HostSession,
    options: InitializationOptions,
    spoke: Callable[[], None],
    turnstile: Turnstile,
) -> None:
    """Serve one host until it closes ``stream``. A line that is no JSON-RPC is answered, and the rest goes on.

    Args:
        stream: the connection.
        server: answers.
        session: of the host.
        options: what ``initialize`` is answered with.
        spoke: is called with each message, so that a connection is known from those that never say anything.
        turnstile: is passed at the end, which takes as long as some calls.
    """

    async def serve(read: Read, write: Write) -> None:
        await era.serve(server, read, write, session, options)

    await serve_lines(stream, _messages(stream, spoke, turnstile), serve, (session.send_updates,))


async def _messages(
    stream: UnixStream, spoke: Callable[[], None], turnstile: Turnstile
) -> AsyncGenerator[SessionMessage | JSONRPCError, None]:
    async for line in _lines(stream):
        message = _message(line)
        if not isinstance(message, JSONRPCError):
            spoke()
        yield message
    await turnstile.passed()


async def refuse(stream: UnixStream, why: str) -> None:
    """Answer the first request with ``why``, so that the host can show it."""
    with anyio.move_on_after(REFUSE_SECONDS):
        async for line in _lines(stream):
            message = parse(line) if isinstance(line, bytes) else None
            if message is not None and is_id(message.get("id")):
                await stream.send(error_line(message["id"], INTERNAL_ERROR, why))
                return


async def _lines(stream: UnixStream) -> AsyncIterator[bytes | tuple[bytes, bytes]]:
    lines = Lines()
    while data := await stream.receive(CHUNK):
        for line in lines.feed(data):
            yield line


def _message(line: bytes | tuple[bytes, bytes]) -> SessionMessage | JSONRPCError:
    """Return what ``line`` says or, as the error to send back, why it says nothing."""
    if isinstance(line, tuple):
        found = id_at_end(*line)
        return _complaint(found, INVALID_REQUEST, f"The message is larger than {MAX_LINE} bytes. Send less at once.")
    try:
        check_json(line, max_bytes=MAX_LINE + 1)
    except BadJson as error:
        found = id_at_end(line[:KEPT_END], line[-KEPT_END:])
        code = PARSE_ERROR if error.why is Why.TOO_DEEP else INVALID_REQUEST
        return _complaint(found, code, f"The message can't be taken: {error}. Send less at once.")
    parsed = None
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        # To the SDK, a request whose id is none (a fraction, null) is a notification, which nobody would answer.
        if isinstance(message, JSONRPCNotification) and b'"id"' in line:
            parsed = parse(line)
        if parsed is None or "id" not in parsed:
            return SessionMessage(message)
    except ValueError:
        parsed = parse(line)
    if parsed is not None:
        return _complaint(parsed.get("id"), INVALID_REQUEST, "This is no JSON-RPC 2.0 request or notification.")
    try:
        from_json(line)
    except ValueError:
        return _complaint(None, PARSE_ERROR, "This is no JSON. Send one JSON-RPC message per line.")
    return _complaint(None, INVALID_REQUEST, "A message is one JSON object. Batches are not part of MCP.")


def _complaint(request_id: object, code: int, text: str) -> JSONRPCError:
    shown = request_id if isinstance(request_id, (str, int)) and is_id(request_id) else None
    if isinstance(shown, str) and any("\ud800" <= char <= "\udfff" for char in shown):
        shown = None  # half of a character, which can't be written out again
    return JSONRPCError(jsonrpc="2.0", id=shown, error=ErrorData(code=code, message=text))

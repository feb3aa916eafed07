"""What stands before Socket.IO: the version handshake, the bounds on strangers, and which frames are taken at all.

Each request of a client passes here first, whichever transport it uses. What is refused is answered here, with a body
and its length, so that the answer arrives.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast
from urllib.parse import parse_qs

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sublet.daemon.net.http_connection import mark_known
from sublet.office_server.lines import Line, Lines, works_for
from sublet.office_server.web_socket import ABORT_KEY, GROW_KEY
from sublet.protocol.bounded_json import BadJson, parse_json
from sublet.protocol.canonical import JsonValue
from sublet.protocol.offices.frames import BadFrame, Kind, read_frame
from sublet.protocol.offices.names import SOCKET_PATH, VERSION_FIELD, VERSION_MISMATCH
from sublet.protocol.offices.version import ProtocolVersion, handshake_refusal

MAX_QUERY_CHARS: Final = 1_024
MAX_FIELDS: Final = 12
MAX_PACKETS: Final = 16
"""Of one body, as Engine.IO has it."""
OPEN_CHARS: Final = 4_096
_UPGRADE: Final = ("2probe", "5")
_SEPARATOR: Final = "\x1e"
_MESSAGE: Final = "4"
_OVERLAP: Final[tuple[int, Mapping[str, JsonValue]]] = (
    400,
    {"code": 400, "message": "This session has such a request already"},
)
"""Each one that waits holds a connection, and what it has brought."""


class Gate:
    """An ASGI application before another one.

    Args:
        inner: Socket.IO.
        lines: are told which sessions there are.
        version: of the protocol, that is announced.
        hosts: what ``Host`` may be; None for anything.
    """

    def __init__(
        self, inner: ASGIApp, lines: Lines, version: ProtocolVersion, hosts: frozenset[str] | None = None
    ) -> None:
        self._inner = inner
        self._lines = lines
        self._version = version
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it on."""
        if scope["type"] not in ("http", "websocket"):
            return
        line, refusal = self._look(scope)
        if line is None:
            status, body = refusal
            await _refuse(scope, receive, send, status, body)
            return
        works_for(line)
        if not line.session:
            await self._lines.turnstile.passed()  # hundreds that come at one moment are no one turn of the loop
        if scope["type"] == "websocket":
            if not line.carried_by(scope["state"].get(GROW_KEY), scope["state"].get(ABORT_KEY)):
                await _refuse(scope, receive, send, *_OVERLAP)
                return
            try:
                await self._inner(scope, self._frames(line, receive), self._sent(line, send))
            finally:
                line.dropped()
        elif scope["method"] in line.busy:
            await _refuse(scope, receive, send, *_OVERLAP)
        else:
            if line.known:
                mark_known(scope.get("state"))
            line.busy.add(scope["method"])
            try:
                await self._http(scope, line, receive, send)
            finally:
                line.busy.discard(scope["method"])

    def _look(self, scope: Scope) -> tuple[Line | None, tuple[int, Mapping[str, JsonValue]]]:
        """Return the line of a request, or else the status and body that refuse it."""
        headers = {name.lower(): value for name, value in scope["headers"]}
        if self._hosts is not None and headers.get(b"host", b"").decode("latin-1").lower() not in self._hosts:
            return None, (421, {"code": 421, "message": "This host is not served here"})
        if b"origin" in headers:
            # A page of a browser, whatever its address: members of offices are programs.
            return None, (403, {"code": 403, "message": "Pages of browsers are not served here"})
        if scope["path"].rstrip("/") + "/" != SOCKET_PATH:
            return None, (404, {"code": 404, "message": "Not found"})
        if scope["type"] == "http" and scope["method"] not in ("GET", "POST"):
            return None, (405, {"code": 405, "message": "Method not allowed"})
        try:
            text = scope["query_string"].decode("ascii")
            query = parse_qs(text, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            return None, (400, {"code": 400, "message": "Malformed query"})
        if len(text) > MAX_QUERY_CHARS or "j" in query:
            return None, (400, {"code": 400, "message": "Malformed query"})
        if not _fits(scope["type"], query.get("transport", ["polling"]), headers):
            return None, (400, {"code": 400, "message": "Invalid transport"})
        if (why := handshake_refusal(query.get(VERSION_FIELD, []), self._version)) is not None:
            return None, (400, why)
        if "sid" not in query:
            client = scope.get("client")
            return self._lines.begin(client[0] if client else ""), (
                503,
                {"code": 503, "message": "Too many new connections; try again"},
            )
        line = self._lines.get(query["sid"][0])
        return line, (400, {"code": 400, "message": "Invalid session"})

    async def _http(self, scope: Scope, line: Line, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            await self._inner(scope, receive, self._sent(line, send))
            return
        body = await _body(receive, line.most_bytes)
        if body is None:
            await _refuse(scope, receive, send, 413, {"code": 413, "message": "Too large"})
            return
        try:
            packets = body.decode().split(_SEPARATOR)
            if len(packets) > MAX_PACKETS:
                raise BadFrame("too many packets")
            for packet in packets:
                self._check(line, packet)
        except ValueError:
            await _refuse(scope, receive, send, 400, {"code": 400, "message": "Malformed packets"})
            return
        line.pace.spend(len(packets), len(body))
        await line.pace.wait()
        left: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replayed() -> Message:
            return left.pop() if left else await receive()

        await self._inner(scope, replayed, send)

    def _check(self, line: Line, packet: str) -> None:
        """Raise where a packet is refused: a stranger connects, and nothing else."""
        kind = read_frame(packet).kind
        if packet in _UPGRADE:
            raise BadFrame("nothing is upgraded here")
        if not line.known and (kind in (Kind.EVENT, Kind.ACK) or not line.may_try()):
            raise BadFrame("it has shown no token")

    def _frames(self, line: Line, receive: Receive) -> Receive:
        # A session that has begun comes to this WebSocket by an upgrade. Elsewhere each such frame would be answered.
        awaited = list(_UPGRADE) if line.session else []

        async def checked() -> Message:
            await line.pace.wait()
            message = await receive()
            if message["type"] != "websocket.receive":
                return message
            text = message.get("text")
            try:
                if text is None:
                    raise BadFrame("it is binary")
                if not awaited:
                    self._check(line, text)
                elif text != awaited.pop(0):
                    raise BadFrame("it is no upgrade")
            except BadFrame:
                return {"type": "websocket.disconnect", "code": 1008}
            line.pace.spend(1, len(text))
            return message

        return checked

    def _sent(self, line: Line, send: Send) -> Send:
        """Count what leaves, and learn from the first packet which session it is."""

        async def counted(message: Message) -> None:
            payload = message.get("text") or message.get("body") or b""
            text = payload if isinstance(payload, str) else payload.decode("utf-8", "replace")
            if text and not line.session:
                self._opened(line, text)
            await send(message)
            # Messages alone were owed: nobody gets rid of a debt by pings, errors or polls that bring nothing.
            messages = [len(one) for one in text.split(_SEPARATOR) if one[:1] == _MESSAGE]
            if messages:
                line.left(sum(messages), len(messages))

        return counted

    def _opened(self, line: Line, text: str) -> None:
        if text.startswith("0{") and len(text) <= OPEN_CHARS:
            try:
                opened = parse_json(text[1:].split(_SEPARATOR)[0])
            except BadJson:
                return
            if isinstance(opened, dict) and isinstance(opened.get("sid"), str):
                self._lines.opened(str(opened["sid"]), line)


def _fits(kind: str, transport: list[str], headers: Mapping[bytes, bytes]) -> bool:
    """Tell whether a request says the transport that it is: the library would take another one for what it says."""
    if kind == "websocket":
        return transport == ["websocket"]
    return transport == ["polling"] and headers.get(b"upgrade", b"").lower() != b"websocket"


async def _body(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request; None where it has more than ``most`` bytes, or its sender is gone."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        part = cast("bytes", message.get("body", b""))
        size += len(part)
        if size > most:
            return None
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


async def _refuse(scope: Scope, receive: Receive, send: Send, status: int, body: Mapping[str, JsonValue]) -> None:
    raw = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(raw)).encode())]
    if body.get("code") == VERSION_MISMATCH:
        headers.append((b"x-a2c-error-code", str(VERSION_MISMATCH).encode()))
    kind = "http.response"
    if scope["type"] == "websocket":
        await receive()
        kind = "websocket.http.response"
    await send({"type": f"{kind}.start", "status": status, "headers": headers})
    await send({"type": f"{kind}.body", "body": raw})

"""What nodes ask over HTTP: no body is read before the key of whoever asks is proven and listed.

By TLS the handshake has proven the key. Without TLS the header ``Authorization`` does, which is signed for this request
(``protocol.federation.request_proof``). What is answered to an event is its receipt: that it was taken, and nothing of
what comes of it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast

from starlette.types import ASGIApp, Receive, Scope, Send

from sublet import deadlines
from sublet.daemon.net.http_connection import mark_known
from sublet.federation.ports import What
from sublet.federation.post import receipt_bytes
from sublet.node_http.connection import KEY
from sublet.node_http.routes import (
    EVENT_PATH,
    HEALTH_PATH,
    MAX_ANSWER_BYTES,
    METHODS,
    PROTOCOL_VERSION,
    SERVER_PATH,
)
from sublet.protocol.bounded_json import parse_json
from sublet.protocol.federation.envelope import MAX_ENVELOPE_BYTES
from sublet.protocol.federation.errors import FederationCode, TaskRefused
from sublet.protocol.federation.request_proof import RequestProof, read_proof
from sublet.protocol.ids import node_id

MAX_REQUESTS_OF_NODE: Final = 8
"""That are answered at one time; each may bring an envelope."""
MAX_REQUESTS: Final = 64
"""Of all nodes."""
MAX_BODY_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 1
_MAX_LENGTH_DIGITS: Final = 8
_STATUSES: Final[Mapping[FederationCode, int]] = {
    FederationCode.AGENT_NOT_FOUND: 404,
    FederationCode.AGENT_BUSY: 429,
    FederationCode.TIMEOUT: 504,
    FederationCode.NODE_UNREACHABLE: 503,
    FederationCode.INVALID_PAYLOAD: 400,
}
_KINDS: Final[Mapping[str, What]] = {EVENT_PATH: "event", SERVER_PATH: "server"}


@dataclass(frozen=True, slots=True)
class GateParts:
    """What the gate needs.

    Args:
        name: of this node.
        fingerprint: of our own key.
        admits: whether whoever has a key may say anything.
        learn: is told a key that was proven; returns whether it is listed still.
        answer: takes what came, and by which node's key; returns what is answered.
        wall: Unix seconds.
    """

    name: str
    fingerprint: str
    admits: Callable[[bytes], bool]
    learn: Callable[[bytes], bool]
    answer: Callable[[What, bytes, str], Awaitable[bytes]]
    wall: Callable[[], float]


class _Refused(Exception):
    def __init__(self, status: int, code: FederationCode, message: str, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.receipt = receipt_bytes("", TaskRefused(code, message, reason))


_STRANGE: Final = (401, FederationCode.INVALID_PAYLOAD, "no key that is listed here has signed this request", "unknown")


def make_gate(parts: GateParts) -> ASGIApp:
    """Return the ASGI application."""
    return _Gate(parts)


class _Gate:
    def __init__(self, parts: GateParts) -> None:
        self._parts = parts
        self._busy = Counter[bytes]()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            status, body = await self._answered(scope, receive)
        except _Refused as refused:
            await _say(send, refused.status, refused.receipt, close=True)
        else:
            await _say(send, status, body)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, bytes]:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        key, proof = self._caller(scope, headers)
        mark_known(scope.get("state"))
        path = scope["path"]
        if path not in METHODS:
            raise _Refused(404, FederationCode.INVALID_PAYLOAD, "there is no such page", "path")
        if scope["method"] != METHODS[path]:
            raise _Refused(405, FederationCode.INVALID_PAYLOAD, f"it is asked by {METHODS[path]}", "method")
        if self._busy[key] >= MAX_REQUESTS_OF_NODE or self._busy.total() >= MAX_REQUESTS:
            raise _Refused(429, FederationCode.AGENT_BUSY, "too many requests are answered just now", "rate")
        self._busy[key] += 1
        try:
            body = await _body(headers, receive)
            if proof is not None and not proof.covers(body):
                raise _Refused(*_STRANGE)
            if not self._parts.learn(key):  # it was taken out while its body came
                raise _Refused(*_STRANGE)
            if path == HEALTH_PATH:
                said = {"status": "ok", "server_name": self._parts.name, "version": PROTOCOL_VERSION}
                return 200, json.dumps(said).encode()
            answer = await self._parts.answer(_KINDS[path], body, node_id(key))
        finally:
            self._busy[key] -= 1
            if not self._busy[key]:
                del self._busy[key]
        return _status(answer), answer

    def _caller(self, scope: Scope, headers: Mapping[bytes, bytes]) -> tuple[bytes, RequestProof | None]:
        """Return the key that is proven and listed, and the proof where a header is it.

        Raises:
            _Refused: there is none, in the same words whatever is wrong.
        """
        if b"origin" in headers:
            raise _Refused(403, FederationCode.INVALID_PAYLOAD, "pages of browsers are not served here", "origin")
        proven: bytes | None = scope["state"].get(KEY)
        proof: RequestProof | None = None
        if scope["scheme"] != "https":
            proof = read_proof(headers.get(b"authorization", b"").decode("latin-1"))
            proven = proof.public_key if proof is not None else None
        if proven is None or not self._parts.admits(proven):
            raise _Refused(*_STRANGE)
        # A key that is not listed costs no verification.
        path = "" if scope["query_string"] else scope["path"]
        if proof is not None and not proof.proves(scope["method"], path, self._parts.fingerprint, self._parts.wall()):
            raise _Refused(*_STRANGE)
        return proven, proof


async def _body(headers: Mapping[bytes, bytes], receive: Receive) -> bytes:
    declared = headers.get(b"content-length", b"0")
    too_large = _Refused(413, FederationCode.INVALID_PAYLOAD, f"at most {MAX_ENVELOPE_BYTES} bytes are taken", "size")
    if not declared.isdigit() or len(declared) > _MAX_LENGTH_DIGITS or int(declared) > MAX_ENVELOPE_BYTES:
        raise too_large
    body = bytearray()
    with suppress(TimeoutError):
        async with deadlines.timeout(MAX_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    break
                body += cast("bytes", message.get("body", b""))
                if len(body) > MAX_ENVELOPE_BYTES:
                    raise too_large
                if not message.get("more_body", False):
                    return bytes(body)
    raise _Refused(408, FederationCode.INVALID_PAYLOAD, f"its body has {MAX_BODY_SECONDS:.0f} s to come", "slow")


def _status(answer: bytes) -> int:
    """Return the status that fits what is answered: our own receipt, or our page."""
    said = parse_json(answer, max_bytes=MAX_ANSWER_BYTES)
    if not isinstance(said, dict) or said.get("accepted", True):
        return 200
    if said.get("reason") in ("unknown", "signature", "node", "name"):
        return 403
    code = said.get("error")
    if isinstance(code, str) and code in FederationCode.__members__:
        return _STATUSES[FederationCode(code)]
    return 400


async def _say(send: Send, status: int, body: bytes, *, close: bool = False) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if close:
        headers.append((b"connection", b"close"))
    if status in (429, 503):
        headers.append((b"retry-after", str(RETRY_SECONDS).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})

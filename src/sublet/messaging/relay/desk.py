"""The registration port of a relay: names, their certificates, and how the relay is; HTTP over TLS, without cookies.

A request proves itself by its signature, so nobody logs in. Each address may ask for a bounded number of things, and
what it sends is bounded before it is read. ``/metrics`` answers this machine alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from sublet.messaging.relay.accounts import MAX_NAME_CHARS
from sublet.messaging.relay.buckets import Buckets
from sublet.messaging.relay.control import error_json
from sublet.messaging.relay.registry import Registry
from sublet.protocol.canonical import JsonValue, canonical_json
from sublet.protocol.encoding import b64
from sublet.protocol.relay.errors import RelayCode, RelayRefusal, invalid
from sublet.protocol.relay.requests import MAX_REQUEST_BYTES, RequestAction

LEVEL: Final = 0
"""Compliance level of ezagent 7.2: level 1 asks for cold storage, which this relay has not."""
TIERS: Final = (1,)
WORKERS: Final = 4
"""Requests that are checked and kept at one time."""
_STATUS: Final = {
    RelayCode.ENTITY_NOT_FOUND: 404,
    RelayCode.ENTITY_EXISTS: 409,
    RelayCode.CONFLICT: 409,
    RelayCode.PERMISSION_DENIED: 403,
    RelayCode.REVOKED: 403,
    RelayCode.INVALID_SIGNATURE: 401,
    RelayCode.QUOTA_EXCEEDED: 429,
    RelayCode.UNAVAILABLE: 503,
}
_LOOPBACK: Final = ("127.0.0.1", "::1")


class Desk:
    """Answers on the registration port.

    Args:
        registry: keeps names.
        callers: how much each address may ask for.
        ready: tells whether clients can be linked now.
        figures: returns what ``/metrics`` shows, by name.
    """

    def __init__(
        self,
        registry: Registry,
        callers: Buckets,
        ready: Callable[[], bool],
        figures: Callable[[], Mapping[str, float]],
    ) -> None:
        self._registry = registry
        self._callers = callers
        self._ready = ready
        self._figures = figures
        self._limiter = anyio.CapacityLimiter(WORKERS)
        routes = [Route(f"/v1/{action}", partial(self._post, action), methods=["POST"]) for action in RequestAction]
        self.app = Starlette(
            routes=[
                *routes,
                Route("/v1/names/{name}", self._name),
                Route("/v1/relay", self._relay),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics),
            ]
        )

    async def _post(self, action: RequestAction, request: Request) -> Response:
        try:
            self._admit(request)
            raw = await _body(request)
            answer = partial(self._registry.answer, action, raw)
            return _json(await anyio.to_thread.run_sync(answer, limiter=self._limiter))
        except RelayRefusal as refusal:
            return _refused(refusal)

    async def _name(self, request: Request) -> Response:
        try:
            self._admit(request)
            return _json(self._registry.lookup(request.path_params["name"][:MAX_NAME_CHARS]).as_json())
        except RelayRefusal as refusal:
            return _refused(refusal)

    async def _relay(self, request: Request) -> Response:
        shown: dict[str, JsonValue] = {"domain": self._registry.domain, "relay_key": b64(self._registry.public_key)}
        return _json({**shown, "level": LEVEL, "tiers": list(TIERS)})

    async def _healthz(self, request: Request) -> Response:
        return _json({"status": "ok", "level": LEVEL, "tiers": list(TIERS)})

    async def _readyz(self, request: Request) -> Response:
        return _json({"ready": True}) if self._ready() else _json({"ready": False}, 503)

    async def _metrics(self, request: Request) -> Response:
        if request.client is None or request.client.host not in _LOOPBACK:
            return PlainTextResponse("Not Found", 404)
        lines = [f"sublet_relay_{name} {value:g}\n" for name, value in self._figures().items()]
        return PlainTextResponse("".join(lines), media_type="text/plain; version=0.0.4")

    def _admit(self, request: Request) -> None:
        if not self._callers.take(request.client.host if request.client is not None else ""):
            raise RelayRefusal(RelayCode.QUOTA_EXCEEDED, "this address asks for too much; wait a minute")


async def _body(request: Request) -> bytes:
    """Return the body, which is read only where it says that it is short enough."""
    told = request.headers.get("content-length", "")
    if not told.isdecimal() or len(told) > 9 or int(told) > MAX_REQUEST_BYTES:
        raise invalid(f"a request has at most {MAX_REQUEST_BYTES} bytes, and says how many")
    return await request.body()


def _json(body: JsonValue, status: int = 200) -> Response:
    return Response(canonical_json(body), status, media_type="application/json")


def _refused(refusal: RelayRefusal) -> Response:
    return Response(error_json(refusal), _STATUS.get(refusal.code, 400), media_type="application/json")

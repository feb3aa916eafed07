"""The ASGI application: card, JSON-RPC at ``/``, REST, pairing and health, behind the gate and its bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.types import AgentCard
from sse_starlette.sse import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from sublet.a2a_server.auth import Authenticator, CallerGate
from sublet.a2a_server.caller import CallerContextBuilder
from sublet.a2a_server.extension_header import EchoExtension
from sublet.a2a_server.hosts import AllowedHosts
from sublet.a2a_server.json_rpc import WellFormed
from sublet.a2a_server.limits import BoundedBodies
from sublet.a2a_server.moving import MAX_MOVED_BYTES, MovedRoute
from sublet.a2a_server.pairing import MAX_PAIR_BYTES, PairingRoute
from sublet.a2a_server.stopping import Stopping, StopStreams
from sublet.a2a_wire.card import CARD_CACHE_CONTROL, CARD_PATH
from sublet.a2a_wire.names import MOVED_PATH, PAIR_PATH, REST_PATH

RPC_PATH = "/"
LEGACY_CARD_PATH = "/.well-known/agent.json"
HEALTH_PATH = "/healthz"
PING_SECONDS: Final = 3
"""From one sign of life in a quiet stream to the next; the SDK's own client gives up after 5 s without."""

_READ = frozenset({"GET", "HEAD"})
OPEN_PATHS = {CARD_PATH: _READ, LEGACY_CARD_PATH: _READ, PAIR_PATH: frozenset({"POST"})}
"""All that a caller without credentials may reach; pairing asks for its token itself."""


def build_app(
    handler: RequestHandler,
    card: AgentCard,
    current_card: Callable[[], Awaitable[AgentCard]],
    pairing: PairingRoute,
    moved: MovedRoute,
    hosts: AllowedHosts,
    authenticator: Authenticator,
    stopping: Stopping,
) -> ASGIApp:
    """Return the application.

    Args:
        handler: answers A2A calls.
        card: as it is at the start.
        current_card: returns the card as it is now.
        pairing: answers pairing requests.
        moved: hears where peers are.
        hosts: names that a request may use for us.
        authenticator: who callers are.
        stopping: the server's stop.
    """

    async def modified(_: AgentCard) -> AgentCard:
        return await current_card()

    modifier: Callable[[AgentCard], Awaitable[AgentCard]] = modified
    EventSourceResponse.DEFAULT_PING_INTERVAL = PING_SECONDS  # the SDK makes the streams, and offers no other way
    routes = [
        *create_agent_card_routes(card, card_modifier=modifier, cache_control=CARD_CACHE_CONTROL),
        # 0.3 and 1.0 clients share the path: the SDK tells them apart by the names of their methods.
        *create_jsonrpc_routes(handler, RPC_PATH, context_builder=CallerContextBuilder(), enable_v0_3_compat=True),
        *_rest_routes(handler),
        Route(LEGACY_CARD_PATH, _to_card, methods=["GET"]),
        Route(PAIR_PATH, pairing.__call__, methods=["POST"]),
        Route(MOVED_PATH, moved.__call__, methods=["POST"]),
        Route(HEALTH_PATH, _healthy, methods=["GET"]),
    ]
    app: ASGIApp = WellFormed(StopStreams(EchoExtension(Starlette(routes=routes)), stopping), RPC_PATH, REST_PATH)
    return CallerGate(
        BoundedBodies(app, {PAIR_PATH: MAX_PAIR_BYTES, MOVED_PATH: MAX_MOVED_BYTES}), hosts, authenticator, OPEN_PATHS
    )


def _rest_routes(handler: RequestHandler) -> list[Route]:
    """Return the routes of the REST binding; there are no tenants here, so the SDK's routes below one stay away."""
    made = create_rest_routes(handler, CallerContextBuilder(), path_prefix=REST_PATH)
    return [route for route in made if isinstance(route, Route)]


async def _to_card(_: Request) -> Response:
    return RedirectResponse(CARD_PATH, status_code=308)


async def _healthy(_: Request) -> Response:
    return JSONResponse({"status": "ok"})

"""The control API: every ``DaemonApi`` method as HTTP and JSON below ``/v1``, for the owner's own programs (DESIGN 3).

Answers are the views of ``daemon/api``; failures are ``{"error": …}`` with what ``SubletError.as_json``
returns. The socket's mode and the peer's uid decide who may speak at all (``control.server``); whoever gets here is the
person herself, or an agent that runs here (``who``).
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sublet.daemon.api import peer_models
from sublet.daemon.api.daemon_api import DaemonApi
from sublet.daemon.api.operation import Nothing
from sublet.daemon.control.requests import (
    CreatePairLink,
    CreateToken,
    LendRoot,
    check_headers,
)
from sublet.daemon.net.waits import Waits
from sublet.daemon.operations.answers import (
    ControlArea,
    Endpoint,
    answer,
    answers,
    guarded,
    no_route,
    who,
)
from sublet.daemon.operations.reading import read_body, read_query
from sublet.daemon.operations.routes import OperationRoutes
from sublet.daemon.operations.table import OperationTable


class ControlApi:
    """Makes the application; ``stop`` ends streams and long polls, so that a stop of the daemon needs no patience."""

    def __init__(self, api: DaemonApi, table: OperationTable, areas: Sequence[ControlArea] = ()) -> None:
        self._api = api
        self._areas = areas
        self._table = table
        self._waits = Waits()

    def stop(self) -> None:
        """End everything that waits; later requests that would wait are refused."""
        self._waits.stop()

    def app(self) -> Starlette:
        """Return the ASGI application."""
        table: list[tuple[str, str, Endpoint]] = [
            ("GET", "/v1/directory", self._directory),
            ("POST", "/v1/pair-links", self._create_pair_link),
            ("POST", "/v1/peers", self._add_peer),
            ("GET", "/v1/peers", self._list_peers),
            ("DELETE", "/v1/peers/{name}", self._remove_peer),
            ("POST", "/v1/tokens", self._create_token),
            ("GET", "/v1/tokens", self._list_tokens),
            ("DELETE", "/v1/tokens/{name}", self._revoke_token),
            ("GET", "/v1/lend-roots", self._list_lend_roots),
            ("POST", "/v1/lend-roots", self._add_lend_root),
            ("DELETE", "/v1/lend-roots", self._remove_lend_root),
            ("GET", "/v1/status", self._status),
            ("GET", "/v1/doctor", self._doctor),
            ("POST", "/v1/reload", self._reload),
            ("POST", "/v1/shutdown", self._shutdown),
        ]
        made = OperationRoutes(self._table, who, self._waits.unless_stopping)
        table += [(one.method, one.path, made.endpoint(one)) for one in self._table.operations]
        for area in self._areas:
            # What only reads may wait, for as long as the daemon runs.
            table += [
                (method, path, self._while_running(endpoint) if method == "GET" else endpoint)
                for method, path, endpoint in area.table()
            ]
        routes = [Route(path, guarded(endpoint, check_headers), methods=[method]) for method, path, endpoint in table]
        return Starlette(routes=routes, exception_handlers={HTTPException: no_route})

    def _while_running(self, endpoint: Endpoint) -> Endpoint:
        async def ending(request: Request) -> Response:
            return await self._waits.unless_stopping(lambda: endpoint(request))

        return ending

    # Peers, tokens, roots

    async def _directory(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.directory(who(request)))

    async def _create_pair_link(self, request: Request) -> Response:
        body = await read_body(request, CreatePairLink)
        return answer(await self._api.create_pair_link(who(request), ttl_seconds=body.ttl_seconds), status=201)

    async def _add_peer(self, request: Request) -> Response:
        return answer(await self._api.add_peer(await read_body(request, peer_models.AddPeer), who(request)), status=201)

    async def _list_peers(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answers(await self._api.list_peers(who(request)))

    async def _remove_peer(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.remove_peer(request.path_params["name"], who(request)))

    async def _create_token(self, request: Request) -> Response:
        body = await read_body(request, CreateToken)
        return answer(await self._api.create_token(body.name, body.ttl_seconds, who(request)), status=201)

    async def _list_tokens(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answers(await self._api.list_tokens(who(request)))

    async def _revoke_token(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.revoke_token(request.path_params["name"], who(request)))

    async def _list_lend_roots(self, request: Request) -> Response:
        read_query(request, Nothing)
        return JSONResponse(await self._api.list_lend_roots(who(request)))

    async def _add_lend_root(self, request: Request) -> Response:
        body = await read_body(request, LendRoot)
        return JSONResponse(await self._api.add_lend_root(body.path, who(request)), status_code=201)

    async def _remove_lend_root(self, request: Request) -> Response:
        return JSONResponse(await self._api.remove_lend_root(read_query(request, LendRoot).path, who(request)))

    # The daemon itself

    async def _status(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.status(who(request)))

    async def _doctor(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answers(await self._api.doctor(who(request)))

    async def _reload(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return answer(await self._api.reload(who(request)))

    async def _shutdown(self, request: Request) -> Response:
        await read_body(request, Nothing)
        await self._api.shutdown(who(request))
        return JSONResponse({}, status_code=202)

"""The gateways' area of the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.gateway_models import GatewayApi, SendToGateway
from sublet.daemon.api.operation import Nothing
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_body, read_query


class GatewayArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: GatewayApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/gateways", self._list),
            ("GET", "/v1/gateways/{id}", self._get),
            ("POST", "/v1/gateways/{id}/start", self._start),
            ("POST", "/v1/gateways/{id}/stop", self._stop),
            ("POST", "/v1/gateways/{id}/send", self._send),
        ]

    async def _list(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.list_gateways(who(request)))

    async def _get(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.get_gateway(request.path_params["id"], who(request)))

    async def _start(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return answer(await self._api.start_gateway(request.path_params["id"], who(request)))

    async def _stop(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return answer(await self._api.stop_gateway(request.path_params["id"], who(request)))

    async def _send(self, request: Request) -> Response:
        body = await read_body(request, SendToGateway)
        return answer(await self._api.send_to_gateway(request.path_params["id"], body, who(request)))

"""The capabilities' area of the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.capability_models import CapabilityApi, InspectCapability, RunCapability
from sublet.daemon.api.operation import Nothing
from sublet.daemon.operations.answers import Endpoint, answer, who
from sublet.daemon.operations.reading import read_body, read_query


class CapabilityArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: CapabilityApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [
            ("GET", "/v1/capabilities", self._list),
            ("GET", "/v1/capabilities/{id}", self._inspect),
            ("POST", "/v1/capabilities/{id}/verify", self._verify),
            ("POST", "/v1/capabilities/{id}/run", self._run),
        ]

    async def _list(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.list_capabilities(who(request)))

    async def _inspect(self, request: Request) -> Response:
        query = read_query(request, InspectCapability)
        return answer(await self._api.inspect_capability(request.path_params["id"], query, who(request)))

    async def _verify(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return answer(await self._api.verify_capability(request.path_params["id"], who(request)))

    async def _run(self, request: Request) -> Response:
        body = await read_body(request, RunCapability)
        return answer(await self._api.run_capability(request.path_params["id"], body, who(request)))

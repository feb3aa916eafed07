"""The configuration's area of the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.config_models import ConfigApi
from sublet.daemon.control.answers import Endpoint, answer, who
from sublet.daemon.control.requests import Nothing, read_query


class ConfigArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: ConfigApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [("GET", "/v1/config", self._show)]

    async def _show(self, request: Request) -> Response:
        read_query(request, Nothing)
        return answer(await self._api.show_config(who(request)))

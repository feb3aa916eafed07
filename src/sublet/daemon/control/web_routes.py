"""The web page's area of the control API."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sublet.daemon.api.web_api import CreateWebLogin, WebApi
from sublet.daemon.control.answers import Endpoint, answer, who
from sublet.daemon.control.requests import read_body


class WebArea:
    """Implements ``ControlArea``."""

    def __init__(self, api: WebApi) -> None:
        self._api = api

    def table(self) -> list[tuple[str, str, Endpoint]]:
        """``ControlArea.table``."""
        return [("POST", "/v1/web-logins", self._create)]

    async def _create(self, request: Request) -> Response:
        body = await read_body(request, CreateWebLogin)
        return answer(await self._api.create_web_login(body, who(request)), status=201)

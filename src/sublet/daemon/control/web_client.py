"""Typed client of the web page's area: ``WebApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.web_api import CreateWebLogin, WebLogin
from sublet.daemon.control.transport import Transport


class WebClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create_web_login(self, request: CreateWebLogin) -> WebLogin:
        """Make a login link."""
        return await self._transport.fetch(WebLogin, "POST", "/v1/web-logins", body=request)

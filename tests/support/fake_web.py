"""A web page for the command line's tests."""

from __future__ import annotations

from sublet.daemon.api.web_api import CreateWebLogin, WebLogin
from sublet.daemon.control.web_client import WebClient

PAGE = "http://127.0.0.1:8640/"


class FakeWeb(WebClient):
    """Makes links that log nobody in."""

    def __init__(self) -> None:
        """Nothing is connected."""

    async def create_web_login(self, request: CreateWebLogin) -> WebLogin:
        return WebLogin(url=f"{PAGE}#login=id.secret", page=PAGE, expires_at="2026-11-28T10:02:00.000Z")

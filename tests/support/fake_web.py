"""A web page for the command line's tests."""

from __future__ import annotations

from sublet.daemon.api.web_logins import CREATE_WEB_LOGIN, CreateWebLogin, WebLogin
from support.answering import answers

PAGE = "http://127.0.0.1:8640/"


class FakeWeb:
    """Makes links that log nobody in."""

    @answers(CREATE_WEB_LOGIN)
    async def create_web_login(self, request: CreateWebLogin) -> WebLogin:
        return WebLogin(url=f"{PAGE}#login=id.secret", page=PAGE, expires_at="2026-11-28T10:02:00.000Z")

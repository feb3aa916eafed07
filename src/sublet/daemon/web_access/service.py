"""Serves the operation that makes login links."""

from __future__ import annotations

import time
from collections.abc import Callable

from sublet.daemon.api.web_logins import CREATE_WEB_LOGIN, CreateWebLogin, WebLogin
from sublet.daemon.governing.gatekeeper import Gatekeeper
from sublet.daemon.operations.table import serves
from sublet.daemon.times import rfc3339
from sublet.daemon.web_access.logins import WebLogins
from sublet.policy.decision import Subject
from sublet.protocol.errors import LocalCode, SubletError


class WebService:
    """Serves the operation of ``api.web_logins``.

    Args:
        gate: asks policy.
        logins: makes and checks links.
        page: tells where the page is, or None where it is switched off.
    """

    def __init__(self, gate: Gatekeeper, logins: WebLogins, page: Callable[[], str | None]) -> None:
        self._gate = gate
        self._logins = logins
        self._page = page

    @serves(CREATE_WEB_LOGIN)
    async def create_web_login(self, request: CreateWebLogin, caller: Subject) -> WebLogin:
        """Make a login link.

        Raises:
            SubletError: ``UNAVAILABLE`` where the page is switched off.
        """
        page = self._page()
        if page is None:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                "the web page is switched off",
                "Take web.enabled out of config.json, or start the daemon without --web off.",
            )
        secret = self._logins.make(request.ttl_seconds)
        return WebLogin(
            url=f"{page}/#login={secret}", page=f"{page}/", expires_at=rfc3339(time.time() + request.ttl_seconds)
        )

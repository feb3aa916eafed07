"""``WebApi``: before a link is made, the question to policy."""

from __future__ import annotations

import time
from collections.abc import Callable

from sublet.daemon.api.web_api import CreateWebLogin, WebLogin
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations import operations
from sublet.daemon.times import rfc3339
from sublet.daemon.web_access.logins import WebLogins
from sublet.policy.model import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError


@operations
class WebService:
    """Implements ``WebApi``.

    Args:
        gate: asks policy.
        logins: makes and checks links.
        page: tells where the page is, or None where it is switched off.
    """

    def __init__(self, gate: Gatekeeper, logins: WebLogins, page: Callable[[], str | None]) -> None:
        self._gate = gate
        self._logins = logins
        self._page = page

    async def create_web_login(self, request: CreateWebLogin, caller: Subject) -> WebLogin:
        """``WebApi.create_web_login``.

        Raises:
            SubletError: ``UNAVAILABLE`` where the page is switched off.
        """
        await self._gate.ask(caller, Action.WEB_LOGIN, "*")
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

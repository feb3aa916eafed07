"""What the page asks the daemon, as HTTP and JSON below ``/api``: the operations of its owner, and logging in.

Whoever gets past ``_logged_in`` had a link that a person has asked the control socket for, and is that person.
Failures are ``{"error": …}``, as on the control socket.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Annotated, Final, TypeAlias

import structlog
from pydantic import Field
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from sublet.daemon.api.approvals import (
    APPROVE_BY_PASSPHRASE,
    DENY_APPROVAL,
    GET_APPROVAL,
    GET_APPROVER,
    LIST_APPROVALS,
    LIST_GRANTS,
    REVOKE_GRANT,
)
from sublet.daemon.api.assignments import CANCEL_ASSIGNMENT, LIST_ASSIGNMENTS
from sublet.daemon.api.base import MAX_PAGE
from sublet.daemon.api.base import Request as Arguments
from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.delegations import AUDIT_DELEGATION, CANCEL_DELEGATION, GET_DELEGATION, LIST_DELEGATIONS
from sublet.daemon.api.events import FOLLOW_EVENTS, READ_EVENTS, ReadEvents
from sublet.daemon.api.federation import LIST_ALL_AGENTS, LIST_NODES
from sublet.daemon.api.offices import KICK_OFFICE_MEMBER, LIST_OFFICES
from sublet.daemon.api.operation import AnyOperation, Nothing
from sublet.daemon.api.peers import LIST_PEERS
from sublet.daemon.api.policy import LIST_DENIALS, SHOW_POLICY
from sublet.daemon.api.results import REVIEW_RESULT, UNDO_RESULT
from sublet.daemon.api.sessions import LIST_AGENTS, LIST_SESSIONS
from sublet.daemon.api.web_logins import WebLoginCheck
from sublet.daemon.net.http_connection import mark_known
from sublet.daemon.net.waits import Waits
from sublet.daemon.operations.answers import OWNER, Endpoint, answer, failure, guarded, no_route
from sublet.daemon.operations.reading import read_body, read_query
from sublet.daemon.operations.routes import OperationRoutes
from sublet.daemon.operations.table import OperationTable
from sublet.protocol.errors import LocalCode, SubletError
from sublet.web.assets import load_assets
from sublet.web.room_routes import MAX_MESSAGE_BYTES, RoomRoutes
from sublet.web.sessions import NewSession, Sessions, WebSession

log = structlog.get_logger(__name__)

Part: TypeAlias = str | bytes | memoryview

MAX_BODY_BYTES = 16 << 10
MAX_STREAMS = 24
"""Pages that follow events at one time; a page that nobody looks at does not."""
KEY_HEADER = "x-sublet-key"
RECENT_EVENTS = 300
"""How far back a page begins that has seen nothing yet."""


OF_THE_PAGE: Final[Mapping[str, AnyOperation]] = {
    "/api/status": SHOW_STATUS,
    "/api/delegations": LIST_DELEGATIONS,
    "/api/delegations/{delegation_id}": GET_DELEGATION,
    "/api/delegations/{delegation_id}/audit": AUDIT_DELEGATION,
    "/api/delegations/{delegation_id}/review": REVIEW_RESULT,
    "/api/delegations/{delegation_id}/cancel": CANCEL_DELEGATION,
    "/api/delegations/{delegation_id}/undo": UNDO_RESULT,
    "/api/assignments": LIST_ASSIGNMENTS,
    "/api/assignments/{delegation_id}/cancel": CANCEL_ASSIGNMENT,
    "/api/peers": LIST_PEERS,
    "/api/approvals": LIST_APPROVALS,
    "/api/approvals/{approval_id}": GET_APPROVAL,
    "/api/approvals/{approval_id}/approve": APPROVE_BY_PASSPHRASE,
    "/api/approvals/{approval_id}/deny": DENY_APPROVAL,
    "/api/grants": LIST_GRANTS,
    "/api/grants/{grant_id}": REVOKE_GRANT,
    "/api/denials": LIST_DENIALS,
    "/api/policy": SHOW_POLICY,
    "/api/agents": LIST_AGENTS,
    "/api/sessions": LIST_SESSIONS,
    "/api/nodes": LIST_NODES,
    "/api/nodes/agents": LIST_ALL_AGENTS,
    "/api/offices": LIST_OFFICES,
    "/api/offices/{office}/members/{name}": KICK_OFFICE_MEMBER,
}
"""The operations of the table that the page may call, as its owner, by where they are on the page."""


class LogIn(Arguments):
    """What stands in a login link."""

    secret: Annotated[str, Field(min_length=1, max_length=200, repr=False)]


class RecentEvents(Arguments):
    """Events before now: how many."""

    limit: Annotated[int, Field(ge=1, le=MAX_PAGE)] = RECENT_EVENTS


class PageApi:
    """Makes the application; ``stop`` ends its streams.

    Args:
        operations: what the daemon can be asked; the page takes ``OF_THE_PAGE``.
        logins: who may log in.
        sessions: who has.
    """

    def __init__(self, operations: OperationTable, logins: WebLoginCheck, sessions: Sessions) -> None:
        self._operations = operations
        self._logins = logins
        self._sessions = sessions
        self._waits = Waits()
        self._made = self._routes(MAX_BODY_BYTES)
        self._streaming = 0
        self._cookie = ""

    def stop(self) -> None:
        """End streams and waits."""
        self._waits.stop()

    def app(self, *, cookie: str) -> Starlette:
        """Return the ASGI application, whose session cookie is named ``cookie``."""
        self._cookie = cookie
        table: list[tuple[str, str, Endpoint]] = [
            ("GET", "/api/events", self._recent_events),
            ("GET", "/api/events/stream", self._stream_events),
            ("GET", "/api/approver", self._get_approver),
            ("POST", "/api/logout", self._log_out),
            *RoomRoutes(self._routes(MAX_MESSAGE_BYTES)).table(),
        ]
        table += [(one.method, path, self._made.endpoint(one)) for path, one in OF_THE_PAGE.items()]
        routes = [
            Route(path, guarded(self._logged_in(endpoint), _anything), methods=[method])
            for method, path, endpoint in table
        ]
        routes.append(Route("/api/login", guarded(self._log_in, _anything), methods=["POST"]))
        routes += [Route(path, asset.answer, methods=["GET"]) for path, asset in load_assets().items()]
        app = Starlette(routes=routes, exception_handlers={HTTPException: no_route})
        app.router.redirect_slashes = False  # what is not here is not here
        return app

    def _routes(self, max_bytes: int) -> OperationRoutes:
        return OperationRoutes(self._operations, lambda _: OWNER, self._waits.unless_stopping, max_bytes)

    def _logged_in(self, endpoint: Endpoint) -> Endpoint:
        """Return ``endpoint`` for those alone who are logged in."""

        async def ask(request: Request) -> Response:
            cookie, key = request.cookies.get(self._cookie, ""), request.headers.get(KEY_HEADER, "")
            session = self._sessions.find(cookie, key) if cookie and key else None
            if session is None:
                nobody = SubletError(LocalCode.TOKEN_INVALID, "nobody is logged in", "Run `sublet web` in a terminal.")
                return failure(nobody, 401)
            request.state.session = session
            mark_known(request.scope.get("state"))
            return await endpoint(request)

        return ask

    async def _log_in(self, request: Request) -> Response:
        self._logins.redeem((await read_body(request, LogIn, MAX_BODY_BYTES)).secret)
        made = await self._sessions.begin()
        log.info("somebody logged in to the web page by a link")
        return self._with_cookie(JSONResponse({"key": made.key, "seconds": made.seconds}), made)

    def _with_cookie(self, response: Response, made: NewSession) -> Response:
        response.set_cookie(self._cookie, made.cookie, max_age=made.seconds, httponly=True, samesite="strict", path="/")
        return response

    async def _log_out(self, request: Request) -> Response:
        await read_body(request, Nothing, MAX_BODY_BYTES)
        await self._sessions.end(_session_of(request))
        response = JSONResponse({})
        response.delete_cookie(self._cookie, path="/", httponly=True, samesite="strict")
        return response

    # Events

    async def _recent_events(self, request: Request) -> Response:
        limit = read_query(request, RecentEvents).limit
        # A cursor from the future counts as the newest event.
        newest = await self._operations.call(READ_EVENTS, ReadEvents(cursor=_FUTURE, limit=1), OWNER)
        asked = ReadEvents(cursor=max(0, newest.cursor - limit), limit=limit)
        found = await self._operations.call(READ_EVENTS, asked, OWNER)
        return answer(found)

    async def _stream_events(self, request: Request) -> Response:
        if self._streaming >= MAX_STREAMS:
            raise SubletError(
                LocalCode.UNAVAILABLE, f"{MAX_STREAMS} pages follow events already", "Close some of their tabs."
            )
        session = _session_of(request)
        response = await self._made.follow(request, FOLLOW_EVENTS, lambda: self._sessions.goes_on(session))
        response.body_iterator = self._counted(response.body_iterator)
        return response

    async def _counted(self, lines: AsyncIterable[Part]) -> AsyncIterator[Part]:
        self._streaming += 1
        try:
            async for line in lines:
                yield line
        finally:
            self._streaming -= 1

    # Approvals

    async def _get_approver(self, request: Request) -> Response:
        read_query(request, Nothing)
        found = await self._operations.call(GET_APPROVER, Nothing(), OWNER)
        # Not the sealed key: a page has no use for it, and whoever has it can try passphrases elsewhere.
        return answer(found.model_copy(update={"sealed": None}))


_FUTURE = 10**17


def _anything(_: Request) -> None:
    """Refuse nothing more: ``OwnPageOnly`` has."""


def _session_of(request: Request) -> WebSession:
    found = request.state.session
    assert isinstance(found, WebSession)
    return found

"""The control API: every operation as HTTP and JSON below ``/v1``, for the owner's own programs (DESIGN 3).

Answers are the views of ``daemon/api``; failures are ``{"error": …}`` with what ``SubletError.as_json``
returns. The socket's mode and the peer's uid decide who may speak at all (``control.server``); whoever gets here is the
person herself, or an agent that runs here (``who``).
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Route

from sublet.daemon.control.client_http import HOST
from sublet.daemon.net.waits import Waits
from sublet.daemon.operations.answers import guarded, no_route, who
from sublet.daemon.operations.routes import OperationRoutes
from sublet.daemon.operations.table import OperationTable
from sublet.protocol.errors import LocalCode, SubletError


class ControlApi:
    """Makes the application; ``stop`` ends streams and long polls, so that a stop of the daemon needs no patience."""

    def __init__(self, table: OperationTable) -> None:
        self._table = table
        self._waits = Waits()

    def stop(self) -> None:
        """End everything that waits; later requests that would wait are refused."""
        self._waits.stop()

    def app(self) -> Starlette:
        """Return the ASGI application."""
        made = OperationRoutes(self._table, who, self._waits.unless_stopping)
        routes = [
            Route(one.path, guarded(made.endpoint(one), check_headers), methods=[one.method])
            for one in self._table.operations
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: no_route})


def check_headers(request: Request) -> None:
    """Refuse whatever a browser would send: the socket is for programs.

    Raises:
        SubletError: ``POLICY_DENIED``.
    """
    headers = request.headers
    if headers.getlist("host") != [HOST] or "origin" in headers or "sec-fetch-site" in headers:
        raise SubletError(LocalCode.POLICY_DENIED, "the control socket answers the command line only", "Use `sublet`.")

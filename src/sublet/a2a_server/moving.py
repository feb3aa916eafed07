"""``POST /sublet/v1/moved``: a paired daemon tells where it is called from now on."""

from __future__ import annotations

from typing import Final, cast

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from sublet.a2a_server.caller import SCOPE_KEY, Caller
from sublet.a2a_server.refusal import http_error
from sublet.daemon.ports.given_to_a2a import Moved, WhereaboutsApi
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError

MAX_MOVED_BYTES: Final = 32 << 10

_REQUEST: Final = TypeAdapter(Moved)


class MovedRoute:
    """Hands on what a peer tells; others have no address here.

    Args:
        whereabouts: checks it, and keeps it.
    """

    def __init__(self, whereabouts: WhereaboutsApi) -> None:
        self._whereabouts = whereabouts

    async def __call__(self, request: Request) -> Response:
        """Answer one request of a caller that the gate has let in."""
        caller = cast("Caller", request.scope[SCOPE_KEY])
        if caller.peer is None:
            error = SubletError(ErrorCode.AUTH_FAILED, "a token is no paired daemon", "Pair with this daemon.")
            return http_error(403, error)
        try:
            told = _REQUEST.validate_json(await request.body(), strict=True)
        except ValidationError:
            return http_error(400, SubletError(LocalCode.INVALID_ARGUMENT, "malformed address", "Update the caller."))
        try:
            await self._whereabouts.moved(caller.peer, caller.source_host, told)
        except SubletError as error:
            return http_error(403 if error.code is ErrorCode.AUTH_FAILED else 400, error)
        return Response(status_code=204)

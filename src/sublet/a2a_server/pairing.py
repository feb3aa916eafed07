"""``POST /sublet/v1/pair``: the one route whose caller shows a one-time token instead of an identity."""

from __future__ import annotations

import dataclasses
import time
from collections import OrderedDict
from collections.abc import Callable

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sublet.a2a_server.refusal import http_error
from sublet.daemon.ports.given_to_a2a import PairingApi, PairRequest
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError

MAX_PAIR_BYTES = 16 << 10
ATTEMPTS_PER_MINUTE = 10
MAX_SOURCES = 1_024
_WINDOW_SECONDS = 60.0

_REQUEST = TypeAdapter(PairRequest)


class Attempts:
    """How often each source address has tried lately; when too many try, the oldest are forgotten.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: OrderedDict[str, list[float]] = OrderedDict()

    def allow(self, source: str) -> bool:
        """Count a try of ``source`` and tell whether it is within bounds."""
        now = self._clock()
        recent = [at for at in self._tries.pop(source, []) if now - at < _WINDOW_SECONDS]
        allowed = len(recent) < ATTEMPTS_PER_MINUTE
        self._tries[source] = [*recent, now] if allowed else recent
        if len(self._tries) > MAX_SOURCES:
            self._tries.popitem(last=False)
        return allowed


class PairingRoute:
    """Hands the request to the answering half of pairing.

    Args:
        pairing: checks the proof and pins the key.
    """

    def __init__(self, pairing: PairingApi) -> None:
        self._pairing = pairing
        self._attempts = Attempts()

    async def __call__(self, request: Request) -> Response:
        """Answer one pairing request."""
        if not self._attempts.allow(request.client.host if request.client else ""):
            error = SubletError(ErrorCode.DECLINED, "too many pairing attempts", "Try again in a minute.")
            return http_error(429, error, {"Retry-After": "60"})
        try:
            asked = _REQUEST.validate_json(await request.body(), strict=True)
        except ValidationError:
            error = SubletError(LocalCode.INVALID_ARGUMENT, "malformed pairing request", "Update the caller.")
            return http_error(400, error)
        try:
            reply = await self._pairing.complete(asked)
        except SubletError as error:
            return http_error(403 if error.code is LocalCode.TOKEN_INVALID else 400, error)
        return JSONResponse(dataclasses.asdict(reply))

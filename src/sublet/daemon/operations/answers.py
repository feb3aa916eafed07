"""Writes what HTTP faces answer: views as JSON, failures with their status, streams of events; and tells who asks."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from sublet.daemon.api.base import in_utf8, json_of
from sublet.policy.decision import Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError

OWNER = Subject(kind="human")

Endpoint = Callable[[Request], Awaitable[Response]]

log = structlog.get_logger(__name__)

_STATUS: dict[ErrorCode | LocalCode, int] = {
    LocalCode.INVALID_ARGUMENT: 422,
    LocalCode.NOT_FOUND: 404,
    LocalCode.PEER_UNKNOWN: 404,
    LocalCode.CONFLICT: 409,
    LocalCode.KEY_CHANGED: 409,
    LocalCode.ALREADY_RUNNING: 409,
    LocalCode.POLICY_DENIED: 403,
    LocalCode.TOKEN_INVALID: 403,
    LocalCode.APPROVAL_INVALID: 403,
    LocalCode.APPROVAL_REQUIRED: 403,
    LocalCode.APPROVER_MISSING: 403,
    LocalCode.PASSPHRASE_WRONG: 403,
    LocalCode.PEER_UNREACHABLE: 502,
    LocalCode.UNAVAILABLE: 503,
    LocalCode.DAEMON_UNAVAILABLE: 503,
    LocalCode.INTERNAL: 500,
}
_DEFAULT_STATUS = 422
"""For the codes of AWCP 4.5: the request was understood and refused."""


def who(request: Request) -> Subject:
    """Return who has asked: the person herself, or an agent of ours that runs for somebody else."""
    found = getattr(request.state, "caller", OWNER)
    assert isinstance(found, Subject)
    return found


def error_body(error: SubletError) -> dict[str, JsonValue]:
    """Return the JSON form of a failure."""
    return {"error": error.as_json()}


def guarded(endpoint: Endpoint, check: Callable[[Request], None]) -> Endpoint:
    """Return ``endpoint`` with every failure as the answer that tells of it; ``check`` refuses by raising one."""

    async def guard(request: Request) -> Response:
        try:
            check(request)
            return await endpoint(request)
        except SubletError as error:
            return failure(error, _STATUS.get(error.code, _DEFAULT_STATUS))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            log.exception("an operation over HTTP failed", path=request.url.path)
            broken = SubletError(LocalCode.INTERNAL, "an internal error occurred", "See the daemon's log.")
            return failure(broken, 500)

    return guard


async def no_route(_request: Request, error: Exception) -> Response:
    """Answer what is no operation."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    wrong = "this method is not offered here" if status == 405 else "there is no such operation"
    return failure(SubletError(LocalCode.NOT_FOUND, wrong, "Update the older of client and daemon."), status)


def failure(error: SubletError, status: int) -> Response:
    """Return the answer that tells of a failure."""
    return JSONResponse(in_utf8(error_body(error)), status_code=status)


def answer(view: BaseModel, *, status: int = 200) -> Response:
    """Return one view."""
    return Response(json_of(view), status_code=status, media_type="application/json")


def sse(events: AsyncIterator[tuple[str, str]]) -> StreamingResponse:
    """Return server-sent events of a kind and JSON each, which end with ``error`` where they fail."""

    async def lines() -> AsyncIterator[str]:
        try:
            async for kind, data in events:
                yield f"event: {kind}\ndata: {data}\n\n"
        except SubletError as error:
            yield sse_error(error)
        except Exception:
            log.exception("control API: internal error in a stream")
            broken = SubletError(LocalCode.INTERNAL, "an internal error occurred", "See the daemon's log.")
            yield sse_error(broken)

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def sse_error(error: SubletError) -> str:
    """Return the event that ends a stream which fails."""
    return f"event: error\ndata: {json.dumps(error_body(error))}\n\n"

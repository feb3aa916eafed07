"""The control API: every ``DaemonApi`` method as HTTP and JSON below ``/v1``, for the owner's own programs (DESIGN 3).

Answers are the views of ``daemon/api/models.py``; failures are ``{"error": …}`` with what ``SubletError.as_json``
returns. The socket's mode and the peer's uid decide who may speak at all (``control.server``); whoever gets here is the
person herself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

import anyio
import structlog
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sublet.daemon.api import daemon_models, models, peer_models
from sublet.daemon.api.daemon_api import DaemonApi
from sublet.daemon.api.models import MAX_PAGE
from sublet.daemon.api.review_models import ApplyRequest
from sublet.daemon.control.requests import (
    CreatePairLink,
    CreateToken,
    Events,
    EventsPage,
    LendRoot,
    ListDelegations,
    Nothing,
    Patch,
    Wait,
    check_headers,
    read_body,
    read_query,
)
from sublet.policy.model import Subject
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError

HEARTBEAT_SECONDS = 15.0
OWNER = Subject(kind="human")

T = TypeVar("T")
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
    LocalCode.PEER_UNREACHABLE: 502,
    LocalCode.UNAVAILABLE: 503,
    LocalCode.DAEMON_UNAVAILABLE: 503,
    LocalCode.INTERNAL: 500,
}
_DEFAULT_STATUS = 422
"""For the codes of AWCP 4.5: the request was understood and refused."""


class ControlApi:
    """Makes the application; ``stop`` ends streams and long polls, so that a stop of the daemon needs no patience."""

    def __init__(self, api: DaemonApi) -> None:
        self._api = api
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End everything that waits; later requests that would wait are refused."""
        self._stopping.set()

    def app(self) -> Starlette:
        """Return the ASGI application."""
        table: list[tuple[str, str, Endpoint]] = [
            ("POST", "/v1/delegations", self._create_delegation),
            ("GET", "/v1/delegations", self._list_delegations),
            ("GET", "/v1/delegations/{id}", self._get_status),
            ("GET", "/v1/delegations/{id}/wait", self._wait_for_result),
            ("GET", "/v1/delegations/{id}/audit", self._get_audit_report),
            ("POST", "/v1/delegations/{id}/cancel", self._cancel_delegation),
            ("POST", "/v1/delegations/{id}/extend", self._extend_delegation),
            ("POST", "/v1/delegations/{id}/say", self._say),
            ("GET", "/v1/delegations/{id}/review", self._review_delegation),
            ("GET", "/v1/delegations/{id}/patch", self._result_patch),
            ("POST", "/v1/delegations/{id}/apply", self._apply_delegation),
            ("POST", "/v1/delegations/{id}/discard", self._discard_delegation),
            ("POST", "/v1/delegations/{id}/undo", self._undo_delegation),
            ("POST", "/v1/prune", self._prune),
            ("GET", "/v1/events", self._stream_events),
            ("GET", "/v1/events/page", self._events_since),
            ("GET", "/v1/assignments", self._list_assignments),
            ("GET", "/v1/directory", self._directory),
            ("POST", "/v1/pair-links", self._create_pair_link),
            ("POST", "/v1/peers", self._add_peer),
            ("GET", "/v1/peers", self._list_peers),
            ("DELETE", "/v1/peers/{name}", self._remove_peer),
            ("POST", "/v1/tokens", self._create_token),
            ("GET", "/v1/tokens", self._list_tokens),
            ("DELETE", "/v1/tokens/{name}", self._revoke_token),
            ("GET", "/v1/lend-roots", self._list_lend_roots),
            ("POST", "/v1/lend-roots", self._add_lend_root),
            ("DELETE", "/v1/lend-roots", self._remove_lend_root),
            ("GET", "/v1/status", self._status),
            ("GET", "/v1/doctor", self._doctor),
            ("POST", "/v1/reload", self._reload),
            ("POST", "/v1/shutdown", self._shutdown),
        ]
        routes = [Route(path, _guarded(endpoint), methods=[method]) for method, path, endpoint in table]
        return Starlette(routes=routes, exception_handlers={HTTPException: _no_route})

    # Delegations

    async def _create_delegation(self, request: Request) -> Response:
        body = await read_body(request, models.CreateDelegation)
        return _answer(await self._api.create_delegation(body, OWNER), status=201)

    async def _list_delegations(self, request: Request) -> Response:
        query = read_query(request, ListDelegations)
        return _answers(await self._api.list_delegations(OWNER, limit=query.limit, active=query.active))

    async def _get_status(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answer(await self._api.get_status(request.path_params["id"], OWNER))

    async def _wait_for_result(self, request: Request) -> Response:
        wait = read_query(request, Wait)
        one = request.path_params["id"]
        return _answer(await self._unless_stopping(lambda: self._api.wait_for_result(one, wait.timeout, OWNER)))

    async def _get_audit_report(self, request: Request) -> Response:
        query = read_query(request, Patch)
        return _answer(await self._api.get_audit_report(request.path_params["id"], OWNER, patch=query.patch))

    async def _cancel_delegation(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return _answer(await self._api.cancel_delegation(request.path_params["id"], OWNER))

    async def _review_delegation(self, request: Request) -> Response:
        query = read_query(request, Patch)
        return _answer(await self._api.review_delegation(request.path_params["id"], OWNER, patch=query.patch))

    async def _result_patch(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answer(await self._api.result_patch(request.path_params["id"], OWNER))

    async def _apply_delegation(self, request: Request) -> Response:
        body = await read_body(request, ApplyRequest)
        return _answer(await self._api.apply_delegation(request.path_params["id"], body, OWNER))

    async def _discard_delegation(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return _answer(await self._api.discard_delegation(request.path_params["id"], OWNER))

    async def _undo_delegation(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return _answer(await self._api.undo_delegation(request.path_params["id"], OWNER))

    async def _extend_delegation(self, request: Request) -> Response:
        body = await read_body(request, models.ExtendRequest)
        return _answer(await self._api.extend_delegation(request.path_params["id"], body.seconds, OWNER))

    async def _say(self, request: Request) -> Response:
        body = await read_body(request, models.SayRequest)
        one = request.path_params["id"]
        return _answer(await self._api.say(one, body.prompt, OWNER, follow_up_id=body.follow_up_id))

    async def _prune(self, request: Request) -> Response:
        return _answer(await self._api.prune_resources(await read_body(request, daemon_models.PruneRequest), OWNER))

    async def _list_assignments(self, request: Request) -> Response:
        query = read_query(request, ListDelegations)
        return _answers(await self._api.list_assignments(OWNER, limit=query.limit, active=query.active))

    # Events

    async def _events_since(self, request: Request) -> Response:
        query = read_query(request, EventsPage)
        return _answer(await self._unless_stopping(lambda: self._page(query, query.timeout, query.limit)))

    async def _stream_events(self, request: Request) -> Response:
        query = read_query(request, Events)
        last = request.headers.get("last-event-id", "")
        if last.isascii() and last.isdigit() and len(last) < 19:
            query = query.model_copy(update={"cursor": int(last)})
        # Asked once before the answer begins, so that a refusal is still an HTTP error.
        first = await self._page(query, 0, MAX_PAGE)
        return StreamingResponse(
            self._stream(query, first), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def _stream(self, query: Events, page: models.EventPage) -> AsyncIterator[str]:
        """Yield events as server-sent events until the reader goes away or the daemon stops."""
        while True:
            for event in page.events:
                # ASCII, since readers take U+2028 and its like for the end of a line.
                yield f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json(ensure_ascii=True)}\n\n"
            if not page.events:
                yield ": alive\n\n"
            query = query.model_copy(update={"cursor": page.cursor})
            try:
                page = await self._unless_stopping(partial(self._page, query, HEARTBEAT_SECONDS, MAX_PAGE))
            except SubletError as error:
                yield f"event: error\ndata: {json.dumps(error_body(error))}\n\n"
                return

    async def _page(self, query: Events, timeout: float, limit: int) -> models.EventPage:
        return await self._api.events_since(
            query.cursor, OWNER, delegation_id=query.delegation_id, timeout=timeout, limit=limit
        )

    async def _unless_stopping(self, waiting: Callable[[], Awaitable[T]]) -> T:
        """Return what ``waiting()`` returns, or give up at once when the daemon stops."""
        answers: list[T] = []
        refusals: list[SubletError] = []

        async def wait(scope: anyio.CancelScope) -> None:
            try:
                answers.append(await waiting())
            except SubletError as error:
                # Carried by hand, since a task group would wrap it.
                refusals.append(error)
            scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(wait, group.cancel_scope)
            await self._stopping.wait()
            group.cancel_scope.cancel()
        if refusals:
            raise refusals[0]
        if not answers:
            raise SubletError(LocalCode.UNAVAILABLE, "the daemon is stopping", "Start it again with `sublet up`.")
        return answers[0]

    # Peers, tokens, roots

    async def _directory(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answer(await self._api.directory(OWNER))

    async def _create_pair_link(self, request: Request) -> Response:
        body = await read_body(request, CreatePairLink)
        return _answer(await self._api.create_pair_link(OWNER, ttl_seconds=body.ttl_seconds), status=201)

    async def _add_peer(self, request: Request) -> Response:
        return _answer(await self._api.add_peer(await read_body(request, peer_models.AddPeer), OWNER), status=201)

    async def _list_peers(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answers(await self._api.list_peers(OWNER))

    async def _remove_peer(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answer(await self._api.remove_peer(request.path_params["name"], OWNER))

    async def _create_token(self, request: Request) -> Response:
        body = await read_body(request, CreateToken)
        return _answer(await self._api.create_token(body.name, body.ttl_seconds, OWNER), status=201)

    async def _list_tokens(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answers(await self._api.list_tokens(OWNER))

    async def _revoke_token(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answer(await self._api.revoke_token(request.path_params["name"], OWNER))

    async def _list_lend_roots(self, request: Request) -> Response:
        read_query(request, Nothing)
        return JSONResponse(await self._api.list_lend_roots(OWNER))

    async def _add_lend_root(self, request: Request) -> Response:
        body = await read_body(request, LendRoot)
        return JSONResponse(await self._api.add_lend_root(body.path, OWNER), status_code=201)

    async def _remove_lend_root(self, request: Request) -> Response:
        return JSONResponse(await self._api.remove_lend_root(read_query(request, LendRoot).path, OWNER))

    # The daemon itself

    async def _status(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answer(await self._api.status(OWNER))

    async def _doctor(self, request: Request) -> Response:
        read_query(request, Nothing)
        return _answers(await self._api.doctor(OWNER))

    async def _reload(self, request: Request) -> Response:
        await read_body(request, Nothing)
        return _answer(await self._api.reload(OWNER))

    async def _shutdown(self, request: Request) -> Response:
        await read_body(request, Nothing)
        await self._api.shutdown(OWNER)
        return JSONResponse({}, status_code=202)


def error_body(error: SubletError) -> dict[str, JsonValue]:
    """Return the JSON form of a failure."""
    return {"error": error.as_json()}


def _guarded(endpoint: Endpoint) -> Endpoint:
    async def guarded(request: Request) -> Response:
        try:
            check_headers(request)
            return await endpoint(request)
        except SubletError as error:
            return _failure(error, _STATUS.get(error.code, _DEFAULT_STATUS))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            log.exception("control API: internal error", path=request.url.path)
            broken = SubletError(LocalCode.INTERNAL, "an internal error occurred", "See the daemon's log.")
            return _failure(broken, 500)

    return guarded


async def _no_route(_request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    wrong = "this method is not offered here" if status == 405 else "there is no such operation"
    return _failure(SubletError(LocalCode.NOT_FOUND, wrong, "Update the older of client and daemon."), status)


def _failure(error: SubletError, status: int) -> Response:
    return JSONResponse(error_body(error), status_code=status)


def _answer(view: BaseModel, *, status: int = 200) -> Response:
    return Response(view.model_dump_json(), status_code=status, media_type="application/json")


def _answers(views: Sequence[BaseModel]) -> Response:
    return Response(f"[{','.join(view.model_dump_json() for view in views)}]", media_type="application/json")

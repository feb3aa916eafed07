"""Decoders of the control API: requests over HTTP, in path, query and body."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request

from fuzz.targets import target
from sublet.daemon.api.operation import AnyOperation
from sublet.daemon.api.room_marks import GET_MESSAGE, MODERATE_MESSAGE, REMOVE_REACTION
from sublet.daemon.api.sessions import ASK
from sublet.daemon.operations.reading import read_request
from sublet.protocol.errors import SubletError

IN_PATH = {"room_id": "room-1", "ref_id": "ref-1"}


@target("operation_requests", "daemon.operations.reading:_from_json", raises=[SubletError])
def _operation_requests(data: bytes) -> None:
    """The first byte chooses the operation, the first line is the query, and the rest is the body."""
    stated: tuple[AnyOperation, ...] = (MODERATE_MESSAGE, ASK, REMOVE_REACTION, GET_MESSAGE)
    query, _, body = data[1:].partition(b"\n")
    operation = stated[data[0] % len(stated)] if data else ASK
    request = asyncio.run(read_request(_http(query, body), operation))
    assert type(request) is operation.request
    for name in operation.path_fields:
        assert getattr(request, name) == IN_PATH[name], "nothing but the path says it"
    assert operation.request.model_validate(request.model_dump()) == request


def _http(query: bytes, body: bytes) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": query,
        "headers": [(b"content-type", b"application/json")],
        "path_params": IN_PATH,
    }
    return Request(scope, receive)

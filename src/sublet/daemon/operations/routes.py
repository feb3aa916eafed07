"""Makes HTTP routes of operations: reads the request, calls the operation as whoever asks, and writes its answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sublet.daemon.api.base import in_utf8, json_of
from sublet.daemon.api.operation import AnyOperation, Operation, Streaming
from sublet.daemon.operations.answers import Endpoint, sse
from sublet.daemon.operations.reading import read_request
from sublet.daemon.operations.table import OperationTable
from sublet.policy.model import Subject

Waiting = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class OperationRoutes:
    """Makes the endpoints of one face.

    Args:
        table: serves the operations.
        who: returns who asks.
        unless_stopping: runs what may wait, and gives up when the daemon stops. Every GET goes through it.
        max_bytes: how large a body may be on this face; by default as each operation says.
    """

    def __init__(
        self,
        table: OperationTable,
        who: Callable[[Request], Subject],
        unless_stopping: Waiting,
        max_bytes: int | None = None,
    ) -> None:
        self._table = table
        self._who = who
        self._unless_stopping = unless_stopping
        self._max_bytes = max_bytes

    def endpoint(self, operation: AnyOperation) -> Endpoint:
        """Return what answers requests for ``operation``."""
        return self._streaming(operation) if isinstance(operation, Streaming) else self._answering(operation)

    def _answering(self, operation: Operation[Any, Any]) -> Endpoint:
        async def answer(http: Request) -> Response:
            request = await read_request(http, operation, self._max_bytes)

            async def call() -> Any:
                return await self._table.call(operation, request, self._who(http))

            found = await (self._unless_stopping(call) if operation.method == "GET" else call())
            return written(found, operation.status)

        return answer

    def _streaming(self, operation: Streaming[Any, Any]) -> Endpoint:
        async def answer(http: Request) -> Response:
            request = await read_request(http, operation, self._max_bytes)
            events = self._table.stream(operation, request, self._who(http))
            # The first one is fetched before the answer begins, so that a refusal is still an HTTP error.
            return sse(_told(operation, await anext(events), events))

        return answer


def written(answer: object, status: int) -> Response:
    """Return ``answer``, which is a view, a list of views or plain JSON, under the wire's own names."""
    if isinstance(answer, BaseModel):
        return Response(json_of(answer), status_code=status, media_type="application/json")
    if isinstance(answer, list) and all(isinstance(one, BaseModel) for one in answer):
        body = f"[{','.join(map(json_of, answer))}]"
        return Response(body, status_code=status, media_type="application/json")
    return JSONResponse(in_utf8(answer), status_code=status)


async def _told(
    operation: Streaming[Any, Any], first: BaseModel, rest: AsyncGenerator[Any, None]
) -> AsyncIterator[tuple[str, str]]:
    async with aclosing(rest):
        yield _event(operation, first)
        async for event in rest:
            yield _event(operation, event)


def _event(operation: Streaming[Any, Any], event: BaseModel) -> tuple[str, str]:
    # ASCII, since readers take U+2028 and its like for the end of a line.
    return operation.kind_of(event), event.model_dump_json(by_alias=True, ensure_ascii=True)

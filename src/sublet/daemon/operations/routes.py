"""Makes HTTP routes of operations: reads the request, calls the operation as whoever asks, and writes its answer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from sublet.daemon.api.base import in_utf8, json_of
from sublet.daemon.api.operation import AnyOperation, Feed, Operation, RequestT, Streaming
from sublet.daemon.operations.answers import Endpoint, sse, sse_error
from sublet.daemon.operations.reading import read_request
from sublet.daemon.operations.table import OperationTable
from sublet.policy.decision import Subject
from sublet.protocol.errors import SubletError
from sublet.turns import Turns

MAX_CURSOR_DIGITS = 18

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
        if isinstance(operation, Operation):
            return self._answering(operation)
        return self._following(operation) if isinstance(operation, Feed) else self._streaming(operation)

    async def follow(
        self, http: Request, feed: Feed[Any, Any], go_on: Callable[[], bool] = lambda: True
    ) -> StreamingResponse:
        """Return the answer to a request for ``feed``: events until the reader goes away or the daemon stops.

        Args:
            http: what came.
            feed: what is asked for.
            go_on: tells whether the reader may have what has come, or a sign that nothing has.

        Raises:
            SubletError: what policy says, before the answer has begun, so that a refusal is still an HTTP error.
        """
        request = _taken_up(http, await read_request(http, feed, self._max_bytes))
        pieces = self._table.feed(feed, request, self._who(http))

        async def lines(events: list[Any]) -> AsyncIterator[str]:
            async with aclosing(pieces):
                try:
                    while go_on():
                        for event in events:
                            yield _numbered(event)
                        if not events:
                            yield ": alive\n\n"
                        events = await self._unless_stopping(lambda: anext(pieces))
                except SubletError as error:
                    yield sse_error(error)

        first = await self._unless_stopping(lambda: anext(pieces))
        return StreamingResponse(lines(first), media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    def _answering(self, operation: Operation[Any, Any]) -> Endpoint:
        async def answer(http: Request) -> Response:
            request = await read_request(http, operation, self._max_bytes)

            async def call() -> Any:
                return await self._table.call(operation, request, self._who(http))

            found = await (self._unless_stopping(call) if operation.method == "GET" else call())
            return await written(found, operation.status)

        return answer

    def _following(self, feed: Feed[Any, Any]) -> Endpoint:
        async def answer(http: Request) -> Response:
            return await self.follow(http, feed)

        return answer

    def _streaming(self, operation: Streaming[Any, Any]) -> Endpoint:
        async def answer(http: Request) -> Response:
            request = await read_request(http, operation, self._max_bytes)
            events = self._table.stream(operation, request, self._who(http))
            # The first one is fetched before the answer begins, so that a refusal is still an HTTP error.
            return sse(_told(operation, await anext(events), events))

        return answer


def _taken_up(http: Request, request: RequestT) -> RequestT:
    """Return ``request`` from the last event on that a reader has who comes back."""
    last = http.headers.get("last-event-id", "")
    if last.isascii() and last.isdigit() and len(last) <= MAX_CURSOR_DIGITS:
        return request.model_copy(update={"cursor": int(last)})
    return request


def _numbered(event: Any) -> str:
    # ASCII, since readers take U+2028 and its like for the end of a line.
    return f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json(ensure_ascii=True)}\n\n"


async def written(answer: object, status: int) -> Response:
    """Return ``answer``, which is a view, a list of views or plain JSON, under the wire's own names.

    Between the views of a long list others have the loop. A thread would not give it to them, since the interpreter is
    held as long as one view is written.
    """
    if isinstance(answer, BaseModel):
        return Response(json_of(answer), status_code=status, media_type="application/json")
    if isinstance(answer, list) and all(isinstance(one, BaseModel) for one in answer):
        views, turns = list[str](), Turns()
        for one in answer:
            await turns.take()
            views.append(json_of(one))
        return Response(f"[{','.join(views)}]", status_code=status, media_type="application/json")
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

"""What carries the calls of the control API: one connection a call over the daemon's socket, answers as views."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Protocol, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from sublet.daemon.api.operation import AnswerT, EventT, Feed, NumberedT, Operation, RequestT, Streaming
from sublet.daemon.control.http import Fault, Query, TransportFailed, exchange
from sublet.daemon.operations.calling import not_understood, read_answer, read_event, read_numbered, write_request
from sublet.daemon.paths import Home
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.patterns import Pattern

ModelT = TypeVar("ModelT", bound=BaseModel)
T = TypeVar("T")
SelfT = TypeVar("SelfT", bound="SocketTransport")

_SEGMENT = Pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
WITH_BODY = frozenset({"POST", "PATCH"})


class Transport(Protocol):
    """What carries the calls."""

    async def fetch(
        self,
        model: type[ModelT],
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: BaseModel | Mapping[str, object] | None = None,
    ) -> ModelT:
        """Return the one view that an operation answers with."""

    async def fetch_many(self, model: type[ModelT], path: str, query: Query | None = None) -> list[ModelT]:
        """Return the views that an operation answers with."""

    def listen(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: BaseModel | Mapping[str, object] | None = None,
    ) -> AsyncGenerator[tuple[str, str], None]:
        """Yield server-sent events as they come: their kind and their data."""


class SocketTransport:
    """``Calls`` over the control socket of ``home``. To be used in ``async with``; failures are ``SubletError``."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def __aenter__(self: SelfT) -> SelfT:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        """Nothing is kept between two calls."""

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> AnswerT:
        """``Calls.call``."""
        written = write_request(operation, request)
        return read_answer(operation, await self._received(operation.method, written.path, written.query, written.body))

    async def stream(self, operation: Streaming[RequestT, EventT], request: RequestT) -> AsyncGenerator[EventT, None]:
        """``Calls.stream``."""
        written = write_request(operation, request)
        lines = self._listen(operation.method, written.path, written.query, written.body)
        async with aclosing(lines) as events:
            async for kind, data in events:
                yield read_event(operation, kind, data)

    async def follow(self, feed: Feed[RequestT, NumberedT], request: RequestT) -> AsyncGenerator[NumberedT, None]:
        """``Calls.follow``. An end of the stream is a break, since a feed has none."""
        written = write_request(feed, request)
        async with aclosing(self._listen(feed.method, written.path, written.query, written.body)) as events:
            async for _, data in events:
                yield read_numbered(feed, data)
        raise self.unavailable(Fault.BROKEN)

    async def listen(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: BaseModel | Mapping[str, object] | None = None,
    ) -> AsyncGenerator[tuple[str, str], None]:
        """Yield server-sent events as they come: their kind and their data.

        Raises:
            SubletError: ``DAEMON_UNAVAILABLE`` where the connection breaks, or what the daemon says.
        """
        content = _encoded(body or {}) if method in WITH_BODY else None
        async with aclosing(self._listen(method, path, query, content)) as events:
            async for event in events:
                yield event

    async def _listen(
        self, method: str, path: str, query: Query | None, body: bytes | None
    ) -> AsyncGenerator[tuple[str, str], None]:
        home = self._checked_home()
        try:
            async with exchange(home.control_socket, method, path, query, body) as answer:
                if answer.status >= 400:
                    raise _failure(answer.status, await answer.body())
                kind = ""
                async for line in answer.lines():
                    name, _, value = line.partition(": ")
                    if name == "event":
                        kind = value
                    elif name == "data" and kind == "error":
                        raise SubletError.from_json(json.loads(value)["error"])
                    elif name == "data":
                        yield kind, value
        except TransportFailed as failed:
            raise self.unavailable(failed.fault) from None

    async def fetch(
        self,
        model: type[ModelT],
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: BaseModel | Mapping[str, object] | None = None,
    ) -> ModelT:
        """Return the one view that an operation answers with."""
        return read(TypeAdapter(model), await self.send(method, path, query, body=body))

    async def fetch_many(self, model: type[ModelT], path: str, query: Query | None = None) -> list[ModelT]:
        """Return the views that an operation answers with."""
        return read(TypeAdapter(list[model]), await self.send("GET", path, query))  # type: ignore[valid-type]

    async def send(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        *,
        body: BaseModel | Mapping[str, object] | None = None,
    ) -> bytes:
        """Return what an operation answers, as it came."""
        return await self._received(method, path, query, _encoded(body or {}) if method in WITH_BODY else None)

    async def _received(self, method: str, path: str, query: Query | None, body: bytes | None) -> bytes:
        home = self._checked_home()
        try:
            async with exchange(home.control_socket, method, path, query, body) as answer:
                received = await answer.body()
        except TransportFailed as failed:
            raise self.unavailable(failed.fault) from None
        if answer.status >= 400:
            raise _failure(answer.status, received)
        return received

    def _checked_home(self) -> Home:
        """Return where the sockets are now: this shell's directory for them may be another than the daemon's."""
        home = self._home.found()
        if not home.verify_runtime():
            raise self.unavailable(Fault.ABSENT)
        return home

    def unavailable(self, fault: Fault) -> SubletError:
        """Return the error for a call that got no answer."""
        if fault is Fault.SILENT:
            return SubletError(
                LocalCode.DAEMON_UNAVAILABLE, "the daemon does not answer", "See its log, or stop it: `sublet down`."
            )
        if fault is Fault.ABSENT:
            why = f"no daemon answers for {self._home.root}"
        else:
            why = "the connection to the daemon broke"
        return SubletError(LocalCode.DAEMON_UNAVAILABLE, why, "Start it with `sublet up --detach`.")


def part(name: str) -> str:
    """Return an id or a name as a path segment.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for what no id or name looks like, and would mean something else in a path.
    """
    if not _SEGMENT.match(name):
        raise SubletError(LocalCode.INVALID_ARGUMENT, "that is no id and no name", "See `sublet ls`.")
    return name


def _encoded(body: BaseModel | Mapping[str, object]) -> bytes:
    """Return ``body`` as JSON.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for text that is not UTF-8, as arguments of a command line may be.
    """
    try:
        raw = body.model_dump_json() if isinstance(body, BaseModel) else json.dumps(body, ensure_ascii=False)
        return raw.encode()
    except ValueError:
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "an argument is not UTF-8", "Write it in UTF-8, or rename the directory."
        ) from None


def read(adapter: TypeAdapter[T], raw: bytes) -> T:
    """Return an answer as what it is.

    Raises:
        SubletError: ``INTERNAL``: it is something else.
    """
    try:
        return adapter.validate_json(raw)
    except ValidationError:
        raise not_understood() from None


def _failure(status: int, body: bytes) -> SubletError:
    try:
        return SubletError.from_json(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return SubletError(LocalCode.INTERNAL, f"the daemon answered with HTTP status {status}", "See its log.")

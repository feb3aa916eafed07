"""Client of the control API, for the command line and tests: one connection a call over the daemon's socket."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import TypeVar

from sublet.daemon.api.operation import AnswerT, EventT, Feed, NumberedT, Operation, RequestT, Streaming
from sublet.daemon.config.paths import Home
from sublet.daemon.control.client_http import Fault, Query, TransportFailed, exchange
from sublet.daemon.operations.calling import read_answer, read_event, read_numbered, write_request
from sublet.protocol.errors import LocalCode, SubletError

ClientT = TypeVar("ClientT", bound="ControlClient")


class ControlClient:
    """``Calls`` over the control socket of ``home``. To be used in ``async with``; failures are ``SubletError``."""

    def __init__(self, home: Home) -> None:
        self._home = home

    async def __aenter__(self: ClientT) -> ClientT:
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
            raise self.unavailable(failed.fault, failed.pid) from None

    async def _received(self, method: str, path: str, query: Query | None, body: bytes | None) -> bytes:
        home = self._checked_home()
        try:
            async with exchange(home.control_socket, method, path, query, body) as answer:
                received = await answer.body()
        except TransportFailed as failed:
            raise self.unavailable(failed.fault, failed.pid) from None
        if answer.status >= 400:
            raise _failure(answer.status, received)
        return received

    def _checked_home(self) -> Home:
        """Return where the sockets are now: this shell's directory for them may be another than the daemon's."""
        home = self._home.found()
        if not home.verify_runtime():
            raise self.unavailable(Fault.ABSENT)
        return home

    def unavailable(self, fault: Fault, pid: int | None = None) -> SubletError:
        """Return the error for a call that got no answer.

        Args:
            fault: what kept it from coming.
            pid: the daemon's process, where that is known.
        """
        which = "the daemon" if pid is None else f"the daemon (pid {pid})"
        if fault is Fault.STOPPED:
            return SubletError(
                LocalCode.DAEMON_UNAVAILABLE,
                f"{which} does not answer, since its process is stopped",
                f"Let it go on: `kill -CONT {pid}`; or end it: `sublet down`.",
            )
        if fault is Fault.SILENT:
            return SubletError(
                LocalCode.DAEMON_UNAVAILABLE, f"{which} does not answer", "See its log, or stop it: `sublet down`."
            )
        if fault is Fault.ABSENT:
            why = f"no daemon answers for {self._home.root}"
        else:
            why = "the connection to the daemon broke"
        return SubletError(LocalCode.DAEMON_UNAVAILABLE, why, "Start it with `sublet up --detach`.")


def _failure(status: int, body: bytes) -> SubletError:
    try:
        return SubletError.from_json(json.loads(body)["error"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return SubletError(LocalCode.INTERNAL, f"the daemon answered with HTTP status {status}", "See its log.")

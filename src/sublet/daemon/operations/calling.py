"""Calls operations: ``call(OPERATION, request)`` looks the same over the control socket and inside the daemon.

This module is loaded by every command of the command line, so it imports no server and no model of an area.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol

from pydantic import TypeAdapter, ValidationError

from sublet.daemon.api.operation import (
    IN_THE_QUERY,
    AnswerT,
    EventT,
    Feed,
    NumberedT,
    Operation,
    RequestT,
    Stated,
    Streaming,
)
from sublet.protocol.errors import LocalCode, SubletError

Query = dict[str, str | float | bool | None]


class Calls(Protocol):
    """Calls operations for one caller."""

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> AnswerT:
        """Do ``operation`` and return its answer.

        Raises:
            SubletError: what the operation fails with; ``DAEMON_UNAVAILABLE`` where no daemon answers.
        """

    def stream(self, operation: Streaming[RequestT, EventT], request: RequestT) -> AsyncGenerator[EventT, None]:
        """Do ``operation`` and yield its events. Closing the generator ends the work.

        Raises:
            SubletError: what the operation fails with; ``DAEMON_UNAVAILABLE`` where the connection breaks.
        """

    def follow(self, feed: Feed[RequestT, NumberedT], request: RequestT) -> AsyncGenerator[NumberedT, None]:
        """Yield the events of ``feed`` as they happen, without end; the ``seq`` of one is where to go on after a break.

        Raises:
            SubletError: as ``stream``.
        """


@dataclass(frozen=True, slots=True)
class WrittenRequest:
    """A request as it goes over HTTP; ``body`` is None where everything is in path and query."""

    path: str
    query: Query
    body: bytes | None


def write_request(operation: Stated[RequestT], request: RequestT) -> WrittenRequest:
    """Return ``request`` as it goes over HTTP.

    Arguments that have their default value are left out, so that an older daemon takes a request that needs nothing
    new.

    Raises:
        SubletError: ``INVALID_ARGUMENT`` for an argument that can't be sent.
    """
    path = operation.path_of(request)
    fields = type(request).model_fields
    left_out = {
        name
        for name, field in fields.items()
        if not field.is_required() and field.default_factory is None and getattr(request, name) == field.default
    }
    left_out |= {*operation.path_fields}
    try:
        if operation.method in IN_THE_QUERY:
            query = request.model_dump(mode="json", exclude=left_out, exclude_none=True)
            "".join(map(str, query.values())).encode()
            return WrittenRequest(path, query, None)
        return WrittenRequest(path, {}, request.model_dump_json(exclude=left_out).encode())
    except ValueError:  # as arguments of a command line may be
        raise SubletError(
            LocalCode.INVALID_ARGUMENT, "an argument is not UTF-8", "Write it in UTF-8, or rename the directory."
        ) from None


def read_answer(operation: Operation[RequestT, AnswerT], raw: bytes) -> AnswerT:
    """Return the answer that came.

    Raises:
        SubletError: ``INTERNAL`` where it is something else than the operation's answer.
    """
    try:
        return TypeAdapter(operation.answer).validate_json(raw)
    except ValidationError:
        raise not_understood() from None


def read_event(operation: Streaming[RequestT, EventT], kind: str, data: str) -> EventT:
    """Return the event that came.

    Raises:
        SubletError: ``INTERNAL`` where the operation has no such event.
    """
    try:
        return operation.events[kind].model_validate_json(data)
    except (KeyError, ValidationError):
        raise not_understood() from None


def read_numbered(feed: Feed[RequestT, NumberedT], data: str) -> NumberedT:
    """Return the event of a feed that came, of whatever kind.

    Raises:
        SubletError: ``INTERNAL`` where it is something else.
    """
    try:
        return TypeAdapter(feed.event).validate_json(data)
    except ValidationError:
        raise not_understood() from None


def not_understood() -> SubletError:
    """Return the error for an answer that this version does not know."""
    return SubletError(
        LocalCode.INTERNAL, "the daemon's answer is not understood", "Restart it with this version of sublet."
    )

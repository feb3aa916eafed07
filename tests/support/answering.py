"""Fakes of the daemon for tests of callers: methods marked with ``answers`` stand for operations, without policy."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, TypeVar, cast

from sublet.daemon.api.operation import AnswerT, AnyOperation, EventT, Operation, RequestT, Streaming

ServiceT = TypeVar("ServiceT")
ANSWERS = "answers_operation"


def answers(
    operation: Operation[RequestT, AnswerT],
) -> Callable[[Callable[[ServiceT, RequestT], Awaitable[AnswerT]]], Callable[[ServiceT, RequestT], Awaitable[AnswerT]]]:
    """Make a method of a fake answer ``operation``."""
    return _marked(operation)


def tells(
    operation: Streaming[RequestT, EventT],
) -> Callable[
    [Callable[[ServiceT, RequestT], AsyncGenerator[EventT, None]]],
    Callable[[ServiceT, RequestT], AsyncGenerator[EventT, None]],
]:
    """Make a method of a fake yield the events of ``operation``."""
    return _marked(operation)


def _marked(operation: AnyOperation) -> Callable[[Any], Any]:
    def mark(method: Any) -> Any:
        setattr(method, ANSWERS, operation.name)
        return method

    return mark


class AnsweringCalls:
    """Implements ``Calls`` by the marked methods of some fakes."""

    def __init__(self, *fakes: object) -> None:
        self._methods: dict[str, Callable[[Any], Any]] = {
            getattr(method, ANSWERS): getattr(fake, name)
            for fake in fakes
            for name, method in vars(type(fake)).items()
            if hasattr(method, ANSWERS)
        }

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> AnswerT:
        """``Calls.call``."""
        return cast("AnswerT", await self._methods[operation.name](request))

    def stream(self, operation: Streaming[RequestT, EventT], request: RequestT) -> AsyncGenerator[EventT, None]:
        """``Calls.stream``."""
        return cast("AsyncGenerator[EventT, None]", self._methods[operation.name](request))

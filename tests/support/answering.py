"""Fakes of the daemon for tests of callers: methods marked with ``answers`` stand for operations, without policy."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial
from typing import Any, TypeVar, cast

from sublet.daemon.api.operation import AnswerT, AnyOperation, EventT, Feed, NumberedT, Operation, RequestT, Streaming
from sublet.daemon.operations.table import Bound, OperationTable
from sublet.policy.decision import Subject

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


def follows(
    feed: Feed[RequestT, NumberedT],
) -> Callable[
    [Callable[[ServiceT, RequestT], AsyncGenerator[NumberedT, None]]],
    Callable[[ServiceT, RequestT], AsyncGenerator[NumberedT, None]],
]:
    """Make a method of a fake yield the events of ``feed``."""
    return _marked(feed)


def plays(
    operation: Operation[RequestT, AnswerT],
) -> Callable[
    [Callable[[ServiceT, RequestT, Subject], Awaitable[AnswerT]]],
    Callable[[ServiceT, RequestT, Subject], Awaitable[AnswerT]],
]:
    """Make a method of a fake answer ``operation`` for a caller, in an ``AnsweringTable``."""
    return _marked(operation)


def plays_feed(
    feed: Feed[RequestT, NumberedT],
) -> Callable[
    [Callable[[ServiceT, RequestT, Subject], AsyncGenerator[list[NumberedT], None]]],
    Callable[[ServiceT, RequestT, Subject], AsyncGenerator[list[NumberedT], None]],
]:
    """Make a method of a fake yield what comes of ``feed`` for a caller, in an ``AnsweringTable``."""
    return _marked(feed)


def _marked(operation: AnyOperation) -> Callable[[Any], Any]:
    def mark(method: Any) -> Any:
        setattr(method, ANSWERS, operation)
        return method

    return mark


class AnsweringCalls:
    """Implements ``Calls`` by the marked methods of some fakes."""

    def __init__(self, *fakes: object) -> None:
        self._methods: dict[str, Callable[[Any], Any]] = {
            operation.name: getattr(fake, name) for fake in fakes for name, operation in _marks(type(fake)).items()
        }

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> AnswerT:
        """``Calls.call``."""
        return cast("AnswerT", await self._methods[operation.name](request))

    def stream(self, operation: Streaming[RequestT, EventT], request: RequestT) -> AsyncGenerator[EventT, None]:
        """``Calls.stream``."""
        return cast("AsyncGenerator[EventT, None]", self._methods[operation.name](request))

    def follow(self, feed: Feed[RequestT, NumberedT], request: RequestT) -> AsyncGenerator[NumberedT, None]:
        """``Calls.follow``."""
        return cast("AsyncGenerator[NumberedT, None]", self._methods[feed.name](request))


class AnsweringTable(OperationTable):
    """Serves what some fakes answer, and asks policy nothing.

    Args:
        fakes: those whose methods take no caller have it kept in their ``callers``.
    """

    def __init__(self, *fakes: object) -> None:
        super().__init__()
        for fake in fakes:
            for name, operation in _marks(type(fake)).items():
                self._served[operation.name] = Bound(operation, partial(_called, fake, name))


def _called(fake: Any, name: str, request: Any, caller: Subject) -> Any:
    """Call the method that the fake has now, since a test may have put another one in its place."""
    method = getattr(fake, name)
    if len(inspect.signature(method).parameters) > 1:
        return method(request, caller)
    if hasattr(fake, "callers"):
        fake.callers.append(caller)
    return method(request)


def _marks(fake: type) -> dict[str, AnyOperation]:
    """Return the marks of a class and its bases; a method that overrides one that is marked stands for the same."""
    methods = {
        name: one for base in reversed(fake.__mro__) for name, one in vars(base).items() if hasattr(one, ANSWERS)
    }
    return {name: getattr(method, ANSWERS) for name, method in methods.items()}

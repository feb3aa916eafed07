"""Binds operations to the methods that serve them, and calls them inside the daemon's own process.

Rules: a service marks its methods with ``serves``. A marked method asks policy before its body runs, however it is
called: by a route, by ``OperationTable.call``, or directly. One that asks inside, and comes to its end without having
asked, fails. An operation is served by one method.

Weak: a method that asks inside may have had an effect before it asks; a test of its refusal has to show that it has
none.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from sublet.daemon.api.base import View
from sublet.daemon.api.operation import (
    ANYTHING,
    AnswerT,
    AnyOperation,
    Asks,
    EventT,
    Feed,
    Hides,
    NumberedT,
    Operation,
    RequestT,
    Stated,
    Streaming,
)
from sublet.daemon.operations.asking import asked_operation, asked_stream
from sublet.policy.decision import Action, Subject
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.events import EventKeys
from sublet.protocol.text import clean_line

SERVES = "serves_operation"
"""Attribute of a method: the operation that it serves."""


class AsksPolicy(Protocol):
    """Asks policy before an operation, as the gatekeeper does."""

    async def ask(
        self,
        caller: Subject,
        action: Action,
        name: str,
        *,
        keys: EventKeys | None = None,
        **attributes: str | int | bool,
    ) -> object:
        """Return if ``caller`` may do ``action`` to ``name``.

        Raises:
            SubletError: ``POLICY_DENIED``, ``NOT_FOUND`` or ``UNAVAILABLE``.
        """

    def hides(self, caller: Subject, action: Action, name: str) -> bool:
        """Tell whether ``caller`` must not see that ``name`` exists."""

    def hides_any(self, caller: Subject, action: Action) -> bool:
        """Tell whether anything of ``action`` is hidden from such callers."""


class Guarded(Protocol):
    """A service that can ask policy."""

    @property
    def _gate(self) -> AsksPolicy: ...


ServiceT = TypeVar("ServiceT", bound=Guarded)
AnswerMethod = Callable[[ServiceT, RequestT, Subject], Coroutine[Any, Any, AnswerT]]
EventMethod = Callable[[ServiceT, RequestT, Subject], AsyncGenerator[EventT, None]]
FeedMethod = Callable[[ServiceT, RequestT, Subject], AsyncGenerator[list[NumberedT], None]]
"""Yields what has come, several events at once, and an empty list now and then while nothing comes."""


@overload
def serves(
    operation: Operation[RequestT, AnswerT],
) -> Callable[[AnswerMethod[ServiceT, RequestT, AnswerT]], AnswerMethod[ServiceT, RequestT, AnswerT]]: ...


@overload
def serves(
    operation: Streaming[RequestT, EventT],
) -> Callable[[EventMethod[ServiceT, RequestT, EventT]], EventMethod[ServiceT, RequestT, EventT]]: ...


@overload
def serves(
    operation: Feed[RequestT, NumberedT],
) -> Callable[[FeedMethod[ServiceT, RequestT, NumberedT]], FeedMethod[ServiceT, RequestT, NumberedT]]: ...


def serves(operation: AnyOperation) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Make a method ``(request, caller)`` of a service serve ``operation``, and ask policy what that says before."""

    def mark(method: Callable[..., Any]) -> Callable[..., Any]:
        marked = _answers(operation, method) if isinstance(operation, Operation) else _streams(operation, method)
        marked.__doc__ = method.__doc__ or operation.summary
        setattr(marked, SERVES, operation)
        return marked

    return mark


ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class Bound(Generic[RequestT, ResultT]):
    """An operation, with the method of one service that serves it and asks policy before."""

    operation: AnyOperation
    method: Callable[[RequestT, Subject], ResultT]


class OperationTable:
    """Everything that this daemon can be asked, each operation with the method that serves it.

    Args:
        services: their marked methods are served.
    """

    def __init__(self, *services: object) -> None:
        self._served: dict[str, Bound[Any, Any]] = {}
        for service in services:
            self.add(service)

    def add(self, service: object) -> None:
        """Serve every marked method of ``service``; serving an operation twice is a programming error."""
        for name, operation in served_by(type(service)).items():
            if operation.name in self._served:
                raise ValueError(f"{operation.name} is served twice")
            self._served[operation.name] = Bound(operation, getattr(service, name))

    @property
    def operations(self) -> tuple[AnyOperation, ...]:
        """All operations that are served."""
        return tuple(bound.operation for bound in self._served.values())

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT, caller: Subject) -> AnswerT:
        """Do ``operation`` for ``caller`` and return its answer.

        Raises:
            SubletError: what policy says, or what the operation fails with.
        """
        bound: Bound[RequestT, Coroutine[Any, Any, AnswerT]] = self._bound(operation)
        return await bound.method(request, caller)

    def stream(
        self, operation: Streaming[RequestT, EventT], request: RequestT, caller: Subject
    ) -> AsyncGenerator[EventT, None]:
        """Do ``operation`` for ``caller`` and yield its events; policy is asked when the first one is fetched.

        Raises:
            SubletError: what policy says, or what the operation fails with.
        """
        bound: Bound[RequestT, AsyncGenerator[EventT, None]] = self._bound(operation)
        return bound.method(request, caller)

    def feed(
        self, feed: Feed[RequestT, NumberedT], request: RequestT, caller: Subject
    ) -> AsyncGenerator[list[NumberedT], None]:
        """Yield the events of ``feed`` for ``caller`` as they come, and an empty list now and then while none does.

        Raises:
            SubletError: what policy says, or what the feed fails with.
        """
        bound: Bound[RequestT, AsyncGenerator[list[NumberedT], None]] = self._bound(feed)
        return bound.method(request, caller)

    def called_by(self, caller: Subject) -> CallsInside:
        """Return what calls operations as ``caller``."""
        return CallsInside(self, caller)

    def _bound(self, operation: Stated[RequestT]) -> Bound[RequestT, Any]:
        bound = self._served[operation.name]
        assert bound.operation is operation, f"there are two operations {operation.name}"
        return bound


class CallsInside:
    """Implements ``Calls`` inside the daemon's own process, for one caller."""

    def __init__(self, table: OperationTable, caller: Subject) -> None:
        self._table = table
        self._caller = caller

    async def call(self, operation: Operation[RequestT, AnswerT], request: RequestT) -> AnswerT:
        """``Calls.call``."""
        return await self._table.call(operation, request, self._caller)

    def stream(self, operation: Streaming[RequestT, EventT], request: RequestT) -> AsyncGenerator[EventT, None]:
        """``Calls.stream``."""
        return self._table.stream(operation, request, self._caller)

    async def follow(self, feed: Feed[RequestT, NumberedT], request: RequestT) -> AsyncGenerator[NumberedT, None]:
        """``Calls.follow``."""
        async with aclosing(self._table.feed(feed, request, self._caller)) as pieces:
            async for events in pieces:
                for event in events:
                    yield event


def served_by(service: type) -> dict[str, AnyOperation]:
    """Return the operations that a class of services serves, by the names of its methods."""
    marked = {name: getattr(method, SERVES, None) for name, method in inspect.getmembers(service)}
    return {name: operation for name, operation in marked.items() if operation is not None}


def _answers(
    operation: Operation[RequestT, AnswerT], method: AnswerMethod[ServiceT, RequestT, AnswerT]
) -> AnswerMethod[ServiceT, RequestT, AnswerT]:
    @functools.wraps(method)
    async def ask_and_do(service: ServiceT, request: RequestT, caller: Subject) -> AnswerT:
        await _ask(operation, service, request, caller)
        try:
            answer = await method(service, request, caller)
        except SubletError as error:
            raise _as_if_hidden(operation, service, request, caller, error) from None
        return answer if operation.hides is None else _without_hidden(operation.hides, service, answer, caller)

    return asked_operation(ask_and_do)


def _streams(
    operation: Stated[RequestT], method: EventMethod[ServiceT, RequestT, EventT]
) -> EventMethod[ServiceT, RequestT, EventT]:
    @functools.wraps(method)
    async def ask_and_do(service: ServiceT, request: RequestT, caller: Subject) -> AsyncGenerator[EventT, None]:
        await _ask(operation, service, request, caller)
        async with aclosing(method(service, request, caller)) as events:
            async for event in events:
                yield event

    return asked_stream(ask_and_do)


def _as_if_hidden(
    operation: Stated[RequestT], service: Guarded, request: RequestT, caller: Subject, error: SubletError
) -> SubletError:
    """Return what is said of an absent thing where a rule hides others: the same words, so that none tells which."""
    asks = operation.asks
    if error.code != LocalCode.NOT_FOUND or not isinstance(asks, Asks) or asks.resource == ANYTHING:
        return error
    if not service._gate.hides_any(caller, asks.action):
        return error
    name = asks.resource_of(request)
    return SubletError(LocalCode.NOT_FOUND, f"there is no {clean_line(name, 100)!r} here")


def _without_hidden(hides: Hides, service: Guarded, answer: AnswerT, caller: Subject) -> AnswerT:
    """Return an answer without what a rule hides from ``caller``: a list of views, or a view with such a list."""
    listed = list(getattr(answer, hides.field) if hides.field else cast("list[View]", answer))
    # Many views may be of one thing, such as all agents of a node: policy is asked once for each.
    names = {str(getattr(view, hides.key)) for view in listed}
    hidden = {name for name in names if service._gate.hides(caller, hides.action, name)}
    left = [view for view in listed if str(getattr(view, hides.key)) not in hidden] if hidden else listed
    if len(left) == len(listed):
        return answer
    return cast("AnswerT", cast("View", answer).model_copy(update={hides.field: left}) if hides.field else left)


async def _ask(operation: Stated[RequestT], service: Guarded, request: RequestT, caller: Subject) -> None:
    asks = operation.asks
    if isinstance(asks, Asks):
        name, attributes = asks.resource_of(request), asks.attributes_of(request)
        await service._gate.ask(caller, asks.action, name, keys=None, **attributes)

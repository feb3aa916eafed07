"""Operations of services: each asks policy before it does anything, and the audit log is told what became of it.

A method that ``serves`` marks fails loudly where it comes to an end without a question to policy, so that no operation
can be added that asks nobody.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar

from sublet.protocol.errors import SubletError

MARK = "asks_policy"
"""Attribute of a method that is an operation."""

Parameters = ParamSpec("Parameters")
AnswerT = TypeVar("AnswerT")


class Teller(Protocol):
    """Writes down what became of a decision."""

    def outcome(self, decision: int, error: str | None) -> None:
        """Take the number of the decision's entry, and why the operation failed, if it did."""


Asked = list[tuple[Teller, int | None]]

_asked: ContextVar[Asked | None] = ContextVar("asked", default=None)


def note_decision(teller: Teller, entry: int | None) -> None:
    """Take note, for the operation under way, that policy was asked; ``entry`` where its outcome is of interest."""
    asked = _asked.get()
    if asked is not None:
        asked.append((teller, entry))


@contextmanager
def decisions_noted() -> Iterator[Asked]:
    """Collect the decisions made meanwhile, for what is no operation of a service and tells their outcome itself."""
    asked: Asked = []
    token = _asked.set(asked)
    try:
        yield asked
    finally:
        _asked.reset(token)


def asked_operation(
    method: Callable[Parameters, Coroutine[Any, Any, AnswerT]],
) -> Callable[Parameters, Coroutine[Any, Any, AnswerT]]:
    """Return ``method``, which fails where it asks policy nothing, and whose outcome the audit log is told."""

    @functools.wraps(method)
    async def operation(*arguments: Parameters.args, **named: Parameters.kwargs) -> AnswerT:
        asked: Asked = []
        token = _asked.set(asked)
        try:
            with _told(method.__qualname__, asked):
                return await method(*arguments, **named)
        finally:
            _asked.reset(token)

    setattr(operation, MARK, True)
    return operation


def asked_stream(
    method: Callable[Parameters, AsyncGenerator[AnswerT, None]],
) -> Callable[Parameters, AsyncGenerator[AnswerT, None]]:
    """Return ``method``, an asynchronous generator, with the same promise as ``asked_operation``."""

    @functools.wraps(method)
    async def operation(*arguments: Parameters.args, **named: Parameters.kwargs) -> AsyncGenerator[AnswerT, None]:
        asked: Asked = []
        with _told(method.__qualname__, asked):
            async with aclosing(method(*arguments, **named)) as pieces:
                while True:
                    # Each piece runs in the context of whoever fetches it, so that it is set anew for each.
                    token = _asked.set(asked)
                    try:
                        piece = await anext(pieces)
                    except StopAsyncIteration:
                        break
                    finally:
                        _asked.reset(token)
                    yield piece

    setattr(operation, MARK, True)
    return operation


@contextmanager
def _told(name: str, asked: Asked) -> Iterator[None]:
    """Tell what became of it in the end, and refuse an end without any question."""
    error: str | None = None
    try:
        yield
        if not asked:
            raise RuntimeError(f"{name} has asked nobody whether it may")
    except SubletError as failure:
        error = str(failure.code)
        raise
    except GeneratorExit:
        raise
    except BaseException as failure:
        error = type(failure).__name__
        raise
    finally:
        for teller, entry in asked:
            if entry is not None:
                teller.outcome(entry, error)

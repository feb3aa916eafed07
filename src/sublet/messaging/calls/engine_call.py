"""States an operation of the engine as one typed value: its name, what it takes and what it answers.

Whoever calls an operation names that value, and mypy checks the arguments and knows the answer. The declaration that
has the operation passes its function through ``by`` or ``by_waiting``, so that mypy checks that end by the same value.

Rules: nothing here or in the modules beside it imports the engine, which a daemon without rooms does not load. The
functions that ``engine_call`` marks are never run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from sublet.messaging.declaring.asking import AskingContext
    from sublet.messaging.declaring.operating import OperationContext

Parameters = ParamSpec("Parameters")
AnswerT = TypeVar("AnswerT")
AnswerT_co = TypeVar("AnswerT_co", covariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class EngineCall(Generic[Parameters, AnswerT_co]):
    """An operation of the engine.

    Args:
        id: its name, such as ``room.create``.
        stated: a function that has its arguments, all of which are passed by name, and its answer.
    """

    id: str
    stated: Callable[Parameters, AnswerT_co]

    def by(self, run: Callable[Concatenate[OperationContext, Parameters], AnswerT_co]) -> Callable[..., object]:
        """Return ``run``, which does this operation."""
        return run

    def by_waiting(
        self, run: Callable[Concatenate[AskingContext, Parameters], Awaitable[AnswerT_co]]
    ) -> Callable[..., object]:
        """Return ``run``, which does this operation and waits for others meanwhile."""
        return run


def engine_call(id: str) -> Callable[[Callable[Parameters, AnswerT]], EngineCall[Parameters, AnswerT]]:
    """Make an operation of the engine of a function that says what it takes and answers."""

    def state(stated: Callable[Parameters, AnswerT]) -> EngineCall[Parameters, AnswerT]:
        return EngineCall(id, stated)

    return state

"""What an operation has that waits for something beyond the engine: it runs on the event loop, as a coroutine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from sublet.messaging.declaring.declaration import Operation
from sublet.messaging.declaring.operating import OperationContext, OperationParts
from sublet.messaging.declaring.operations import checked
from sublet.messaging.schema.fields import Fields
from sublet.protocol.ezagent.ids import EntityId

ResultT = TypeVar("ResultT")


class Surroundings(Protocol):
    """What the running service offers to such an operation."""

    async def operate(self, run: Callable[[OperationParts], ResultT]) -> ResultT:
        """Run something with the parts that operations use, on the engine's thread; durable when it is done."""

    async def ask(self, key: str, payload: bytes) -> list[bytes]:
        """Ask all peers under a key of the bus, and return what they answer, which nobody has checked."""

    async def fetch(self, key: str, body: bytes) -> list[bytes]:
        """Ask under a key as one of ours who may be told, and return what those answer who know."""

    async def make_entity(self, local: str) -> EntityId:
        """Load the key of another entity of ours, or make it, and let it be reached."""


class AskingContext:
    """Who asks, and what its surroundings offer.

    Args:
        entity: one of ours and authenticated before.
        surroundings: the running service.
    """

    def __init__(self, entity: EntityId, surroundings: Surroundings) -> None:
        self.entity = entity
        self._surroundings = surroundings

    async def engine(self, run: Callable[[OperationContext], ResultT]) -> ResultT:
        """Run something on the engine's thread; durable when it is done.

        Raises:
            SubletError: what ``run`` raises.
        """
        return await self._surroundings.operate(lambda parts: run(OperationContext(parts, self.entity)))

    async def ask(self, key: str, payload: bytes) -> list[bytes]:
        """Ask all peers under a key of the bus, and return what they answer, which nobody has checked."""
        return await self._surroundings.ask(key, payload)

    async def fetch(self, key: str, body: bytes) -> list[bytes]:
        """Ask under a key as one of ours who may be told, and return what those answer who know."""
        return await self._surroundings.fetch(key, body)

    async def make_entity(self, local: str) -> EntityId:
        """Load the key of another entity of ours, or make it, and let it be reached.

        Raises:
            SubletError: the name is taken, or is none.
        """
        return await self._surroundings.make_entity(local)


async def run_waiting(operation: Operation, context: AskingContext, arguments: Fields) -> Any:
    """Return what an operation that waits answers.

    Raises:
        SubletError: an argument is missing or not known, or the operation refuses.
    """
    checked(operation, arguments)
    answer: Awaitable[Any] = operation.run(context, **arguments)
    return await answer

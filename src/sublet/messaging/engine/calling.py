"""How whatever runs on the event loop reaches the engine, which has a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine

ResultT = TypeVar("ResultT")


class CallEngine(Protocol):
    """Runs something with the engine, on its thread."""

    async def __call__(self, run: Callable[[Engine], ResultT]) -> ResultT:
        """Return what ``run`` returns, once what it has written is durable.

        Raises:
            SubletError: what ``run`` raises.
        """

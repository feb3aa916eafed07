"""What a tool is: what a host is told of it, and what it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Generic

from sublet.mcp_server.answers import Answer
from sublet.mcp_server.arguments import ArgumentsT, read_arguments
from sublet.mcp_server.call import Call


@dataclass(frozen=True, slots=True)
class Tool(Generic[ArgumentsT]):
    """One tool: what the host is told of it, and what it does.

    ``asks_roots``: whether the host is asked for its roots before it runs.
    """

    name: str
    title: str
    description: str
    arguments: type[ArgumentsT]
    answer: type[Answer]
    run: Callable[[Call, ArgumentsT], Awaitable[Answer]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    asks_roots: bool = False

    def bind(self, given: Mapping[str, object]) -> Callable[[Call], Awaitable[Answer]]:
        """Return the call with its arguments checked.

        Raises:
            SubletError: ``INVALID_ARGUMENT``.
        """
        arguments = read_arguments(self.name, self.arguments, given)
        return lambda call: self.run(call, arguments)

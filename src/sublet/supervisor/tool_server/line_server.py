"""Puts an MCP server of the SDK behind a stream of lines: an agent's connection, and a host's. Loads the SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Sequence
from contextlib import aclosing
from typing import Any, Protocol, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCError

Read: TypeAlias = MemoryObjectReceiveStream[SessionMessage | Exception]
Write: TypeAlias = MemoryObjectSendStream[SessionMessage]


class Stream(Protocol):
    """A connection."""

    async def receive(self, size: int) -> bytes:
        """Return up to ``size`` bytes; none at the end."""

    async def send(self, data: bytes) -> bool:
        """Send all; False where nobody takes it any more."""


async def serve_lines(
    stream: Stream,
    heard: AsyncGenerator[SessionMessage | JSONRPCError, None],
    serve: Callable[[Read, Write], Awaitable[None]],
    beside: Sequence[Callable[[], Coroutine[Any, Any, None]]] = (),
) -> None:
    """Serve one connection until ``heard`` ends or nobody takes the answers.

    No queue is between the two: the next message is read once the server has taken the one before.

    Args:
        stream: answers go there, one line each.
        heard: the messages of the connection. An error among them is an answer to it, and goes back.
        serve: answers what it reads until that ends.
        beside: run meanwhile.
    """
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    answers = write.clone()

    async def receive() -> None:
        async with to_server, aclosing(heard):
            async for message in heard:
                try:
                    if isinstance(message, JSONRPCError):
                        await answers.send(SessionMessage(message))
                    else:
                        await to_server.send(message)
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    return

    async def send() -> None:
        # Closed with this task, or the SDK waits a second for its last words to be taken.
        async with from_server:
            async for item in from_server:
                line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
                if not await stream.send(line):
                    return

    async with to_server, read, write, answers, from_server, anyio.create_task_group() as group:
        group.start_soon(receive)
        group.start_soon(send)
        for call in beside:
            group.start_soon(call)
        await serve(read, write)
        group.cancel_scope.cancel()

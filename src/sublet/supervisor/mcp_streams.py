"""The lines of an MCP server that is a program, as the streams that a client of the SDK reads and writes.

The SDK's own transport for programs keeps a line of any length; here a line has a bound, and JSON is measured before it
is built. The SDK is loaded by whoever uses it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from sublet.protocol.bounded_json import check_json
from sublet.protocol.lines import LineCutter, LineTooLong
from sublet.supervisor.guarded_process import GuardedProcess
from sublet.turns import Turns

MAX_LINE_BYTES: Final = 8 << 20
"""Of one message of a server's."""
MAX_STDERR_BYTES: Final = 65_536
_READ_BYTES: Final = 65_536


def unheard(said: bytes) -> None:
    """Drop what a program says on its standard error."""


def unasked() -> None:
    """Do nothing about a program that says no more."""


@asynccontextmanager
async def session_streams(
    process: GuardedProcess, errors: Callable[[bytes], None] = unheard, ended: Callable[[], None] = unasked
) -> AsyncIterator[tuple[Any, Any]]:
    """Speak with a program by lines on its standard input and output; whoever has started it ends it.

    Args:
        process: the program, whose standard input can be written to.
        errors: gets what it says on its standard error, in pieces.
        ended: is told that nothing more is read from it: it has closed its output, or a line of it was too long.
    """
    from mcp.shared.message import SessionMessage

    to_session, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_session:
            async for line in _lines(process.stdout):
                with contextlib.suppress(ValueError):  # what is no message is not for us
                    await to_session.send(SessionMessage(_message(line)))
        ended()

    async def write() -> None:
        assert process.stdin is not None
        async with from_session:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(text.encode() + b"\n")
                await process.stdin.drain()

    async def drain() -> None:
        while said := await process.stderr.read(MAX_STDERR_BYTES):
            errors(said)

    async def quietly(work: Any) -> None:
        with contextlib.suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            await work()

    try:
        async with anyio.create_task_group() as group:
            for work in (read, write, drain):
                group.start_soon(quietly, work)
            try:
                yield read_stream, write_stream
            finally:
                group.cancel_scope.cancel()
    finally:
        for stream in (to_session, read_stream, write_stream, from_session):
            stream.close()


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Yield whole lines; a longer one than is allowed ends the conversation."""
    lines, turns = LineCutter(MAX_LINE_BYTES), Turns()
    with contextlib.suppress(LineTooLong):
        while chunk := await reader.read(_READ_BYTES):
            await turns.take()
            for line in lines.feed(chunk):
                await turns.take()
                yield line


def _message(line: bytes) -> Any:
    """Return a line as a message of the protocol.

    Raises:
        ValueError: it is none.
    """
    from mcp.types import jsonrpc_message_adapter

    check_json(line, max_bytes=MAX_LINE_BYTES)
    return jsonrpc_message_adapter.validate_json(line, by_name=False)

"""JSON-RPC messages to and from an ACP agent, one a line, with a bound on all that a hostile one could send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from sublet import deadlines
from sublet.protocol.bounded_json import parse_json
from sublet.supervisor.guarded_process import GuardedProcess
from sublet.turns import Turns

MAX_LINE_BYTES: Final = 16 << 20
"""Of one message: agents send whole files as one."""
MAX_BAD_LINES: Final = 64
"""Lines that are no message; some agents print a greeting before they speak the protocol."""
MAX_OPEN_REQUESTS: Final = 64
"""Requests of the agent that are not answered yet."""
MAX_ID_CHARS: Final = 256
"""Of the id of such a request, which is kept until then."""
SEND_SECONDS: Final = 30.0
"""How long an agent may leave what it is told unread."""


class Misbehaved(Exception):
    """The agent breaks the protocol or a bound of it, and is not talked with any more."""


class AgentStream:
    """Implements ``acp.transports.Transport`` over the two ends of a process.

    Args:
        process: started with an open standard input.
        count: is told how many bytes have come.
    """

    def __init__(self, process: GuardedProcess, count: Callable[[int], None]) -> None:
        assert process.stdin is not None, "an ACP agent is talked with"
        self._reader = process.stdout
        self._writer = process.stdin
        self._count = count
        self._sending = asyncio.Lock()
        self._open: set[str] = set()
        self._bad_lines = 0
        self._turns = Turns()
        self.failure = ""
        """Why it ended, where the agent is to blame."""

    async def send(self, message: dict[str, Any]) -> None:
        """Send one message.

        Raises:
            ConnectionError: the agent does not listen any more.
        """
        if "method" not in message and "id" in message:
            self._open.discard(_key(message["id"]))
        line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace") + b"\n"
        try:
            async with self._sending, deadlines.timeout(SEND_SECONDS):
                self._writer.write(line)
                await self._writer.drain()
        except TimeoutError:
            self.failure = self.failure or f"it did not read what it was told for {SEND_SECONDS:.0f} s"
            raise ConnectionError(self.failure) from None

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end, or once the agent misbehaves."""
        try:
            while line := await self._line():
                await self._turns.take()
                if line.isspace():
                    continue
                message = self._message(line)
                if message is not None:
                    return message
        except Misbehaved as error:
            self.failure = self.failure or str(error)
        return None

    async def close(self) -> None:
        """Close nothing: whoever started the process ends it."""

    async def _line(self) -> bytes:
        """Return the next line, empty at the end."""
        parts: list[bytes] = []
        size = 0
        while True:
            try:
                part = await self._reader.readuntil(b"\n")
                end = True
            except asyncio.LimitOverrunError as error:
                part, end = await self._reader.readexactly(error.consumed), False
            except asyncio.IncompleteReadError as error:
                part, end = error.partial, True
            self._count(len(part))
            size += len(part)
            if size > MAX_LINE_BYTES:
                raise Misbehaved(f"it sent a message of more than {MAX_LINE_BYTES >> 20} MiB")
            parts.append(part)
            if end:
                return b"".join(parts)

    def _message(self, line: bytes) -> dict[str, Any] | None:
        try:
            message: Any = parse_json(line, max_bytes=MAX_LINE_BYTES)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            self._bad_lines += 1
            if self._bad_lines > MAX_BAD_LINES:
                raise Misbehaved("what it prints is not the Agent Client Protocol")
            return None
        if message.get("method") is not None and "id" in message:
            if not isinstance(message["id"], str | int | float | None):
                raise Misbehaved("the id of its request is neither text nor a number")
            key = _key(message["id"])
            if len(key) > MAX_ID_CHARS:
                raise Misbehaved(f"the id of its request has more than {MAX_ID_CHARS} characters")
            if key in self._open:
                raise Misbehaved("it used the id of a request again that was not answered yet")
            self._open.add(key)
            if len(self._open) > MAX_OPEN_REQUESTS:
                raise Misbehaved(f"it made more than {MAX_OPEN_REQUESTS} requests at once")
        return message


def _key(request_id: object) -> str:
    return json.dumps(request_id)

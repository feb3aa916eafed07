"""Looking at the first bytes of a connection without taking them."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from sublet.workspace.ssh.reverse import MAX_PREAMBLE, PREAMBLE

_RETRY_SECONDS: Final = 0.02


async def read_preamble(sock: socket.socket) -> bytes | None:
    """Return the line of a reverse connection and take it from the socket; None, taking nothing, for any other start.

    Args:
        sock: a connected, non-blocking socket.

    Raises:
        ConnectionError: the caller is gone, or its line is too long.
    """
    while True:
        await _readable(sock)
        try:
            seen = sock.recv(MAX_PREAMBLE, socket.MSG_PEEK)
        except BlockingIOError:
            continue
        if not seen:
            raise ConnectionResetError("closed before a word")
        if not seen.startswith(PREAMBLE[: len(seen)]):
            return None
        end = seen.find(b"\n")
        if end >= 0:
            return sock.recv(end + 1)
        if len(seen) >= MAX_PREAMBLE:
            raise ConnectionAbortedError("a preamble without an end")
        # the bytes stay, so the socket stays readable: waiting for the rest needs a pause
        await asyncio.sleep(_RETRY_SECONDS)


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(sock, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(sock)

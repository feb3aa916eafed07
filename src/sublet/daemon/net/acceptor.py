"""Where callers come in: connections are accepted here, so that those who never get as far as a request are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import Final

import structlog

from sublet.accepting import accept
from sublet.tasks import alone

MAX_HANDSHAKES: Final = 64
"""TLS handshakes under way. Beyond it the oldest makes room: an honest one takes milliseconds."""
HANDSHAKE_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.1

log = structlog.get_logger(__name__)


class Acceptor:
    """Accepts connections and gives each to a protocol, after the TLS handshake where there is one.

    ``loop.create_server`` would do the same for as many callers as there are file descriptors: without a word they
    could take all of them, and with them what leases and the control socket need.

    Args:
        listener: a listening, non-blocking socket; it stays the caller's.
        make: makes the protocol of one connection.
        tls: context of the server's side, or what returns the one of now; None for plain connections.
    """

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], asyncio.Protocol],
        tls: ssl.SSLContext | Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self._listener = listener
        self._make = make
        self._tls = tls
        self._opening: dict[asyncio.Task[None], None] = {}

    async def serve(self) -> None:
        """Accept until cancelled; connections that are open by then stay."""
        async with asyncio.TaskGroup() as group:
            while True:
                try:
                    sock, _ = await accept(self._listener)
                except OSError as error:  # out of descriptors, or the caller is gone already
                    log.warning("a connection could not be accepted", reason=error.strerror)
                    await asyncio.sleep(_RETRY_SECONDS)
                    continue
                if len(self._opening) >= MAX_HANDSHAKES:
                    oldest = next(iter(self._opening))
                    del self._opening[oldest]
                    oldest.cancel()
                self._begin(group, sock)

    def _begin(self, group: asyncio.TaskGroup, sock: socket.socket) -> None:
        taken = False

        async def open_one() -> None:
            nonlocal taken
            taken = True
            tls = self._tls() if callable(self._tls) else self._tls
            limit = None if tls is None else HANDSHAKE_SECONDS
            with contextlib.suppress(OSError):  # such as a failed handshake
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make, sock, ssl=tls, ssl_handshake_timeout=limit
                )

        def ended(task: asyncio.Task[None]) -> None:
            self._opening.pop(task, None)
            if not taken:  # cancelled before its first step
                sock.close()

        opening = group.create_task(alone("a connection of a caller", open_one))
        self._opening[opening] = None
        opening.add_done_callback(ended)

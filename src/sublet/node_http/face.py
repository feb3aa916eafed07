"""Serves nodes over HTTP on one TCP socket (federation "安全考虑": port 7676)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp

from sublet.daemon.net.addresses import is_loopback
from sublet.daemon.net.http_server import QuietServer, server_config
from sublet.daemon.net.tcp_socket import listen_tcp
from sublet.node_http.connection import NodeConnection
from sublet.protocol.errors import LocalCode, SubletError

MAX_CONNECTIONS = 256
"""Beyond it strangers give way, those of the address that holds the most first (``daemon.net.slots``)."""
MAX_HEAD_BYTES = 8 << 10
BACKLOG = 128
DRAIN_SECONDS = 1
KEEP_ALIVE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class NodeContext:
    """What the composition root provides.

    Args:
        app: answers.
        host: address to listen on.
        port: to listen on; 0 is any free one.
        tls: returns what handshakes are answered with now; None for plain HTTP.
        allow_plaintext: whether plain HTTP is served beyond this machine.
    """

    app: ASGIApp
    host: str
    port: int
    tls: Callable[[], ssl.SSLContext] | None
    allow_plaintext: bool = False


class NodeFace:
    """See the module."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._socket: socket.socket | None = None
        self.address = ""
        """Where it is reached, once it has started."""

    def start(self) -> None:
        """Bind.

        Raises:
            SubletError: ``UNAVAILABLE`` where the port can't be had; ``INVALID_ARGUMENT`` where it would speak plainly
                beyond this machine.
        """
        host, port = self._context.host, self._context.port
        if self._context.tls is None and not is_loopback(host) and not self._context.allow_plaintext:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                "nodes are not served beyond this machine without TLS",
                "Set agent_federation.http.tls, or allow_plaintext where the network is yours alone.",
            )
        try:
            self._socket = listen_tcp(host, port, BACKLOG)
        except OSError as error:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"nodes can't be served on {host}:{port}: {error.strerror or error}",
                "Choose another address in federation.toml (agent_federation.http.listen); port 0 is any free one.",
            ) from error
        scheme = "http" if self._context.tls is None else "https"
        shown = f"[{host}]" if ":" in host else host
        self.address = f"{scheme}://{shown}:{self._socket.getsockname()[1]}"

    async def serve(self) -> None:
        """Serve until cancelled, and close the socket."""
        assert self._socket is not None, "start comes first"
        config = server_config(
            self._context.app,
            NodeConnection,
            connections=MAX_CONNECTIONS,
            head_bytes=MAX_HEAD_BYTES,
            drain_seconds=DRAIN_SECONDS,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
            date=False,
        )
        try:
            await QuietServer(config).serve_until_cancelled(self._socket, lambda: None, self._context.tls)
        finally:
            self._socket.close()

    def release(self) -> None:
        """Close the socket, where nobody serves it."""
        if self._socket is not None:
            self._socket.close()

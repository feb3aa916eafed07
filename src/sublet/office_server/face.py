"""The face of offices: binds, serves Socket.IO and stops. It is made when the first office is there."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

import anyio

from sublet.daemon.net.addresses import is_loopback
from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.http_server import QuietServer, server_config
from sublet.daemon.net.tcp_socket import listen_tcp
from sublet.office_server.desk import Desk
from sublet.office_server.gate import Gate
from sublet.office_server.lines import MAX_FRAME_BYTES, Lines
from sublet.office_server.socketio_server import SocketIoServer
from sublet.office_server.web_socket import growing_web_socket
from sublet.offices.rules import Offices
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.offices.version import ProtocolVersion
from sublet.stop_time import within

MAX_CONNECTIONS = 512
"""Over which clients poll; WebSockets of members do not count, strangers among them have a bound of their own."""
MAX_HEAD_BYTES = 16 << 10
BACKLOG = 128
STOPS = "the daemon stops"
LAST_WORDS_SECONDS = 1.0
"""How long the notices of a stop may take to leave."""
_DRAIN_SECONDS = 1
_KEEP_ALIVE_SECONDS = 60


@dataclass(frozen=True, slots=True)
class OfficeContext:
    """What the composition root provides.

    Args:
        offices: the rules, with who is there.
        desk: answers what members send.
        host: address to listen on.
        shown_host: by which clients reach it.
        port: to listen on; 0 is any free one.
        version: of the protocol, that is announced.
        tls: certificate and private key files; None on loopback alone.
    """

    offices: Offices
    desk: Desk
    host: str
    shown_host: str
    port: int
    version: ProtocolVersion
    tls: tuple[Path, Path] | None


class OfficeFace:
    """Serves offices on one TCP socket."""

    def __init__(self, context: OfficeContext) -> None:
        self._context = context
        self._socket: socket.socket | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """The URL that clients are given, without a path."""
        return self._address

    async def start(self) -> None:
        """Bind.

        Raises:
            SubletError: ``UNAVAILABLE`` where the port can't be had, ``INVALID_ARGUMENT`` where it would listen beyond
                this machine without TLS.
        """
        host = self._context.host
        if not is_loopback(host) and self._context.tls is None:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT, "offices can't be served beyond this machine without TLS", "Use 127.0.0.1."
            )
        try:
            self._socket = listen_tcp(host, self._context.port, BACKLOG)
        except OSError as error:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"offices can't be served on {host}:{self._context.port}: {error.strerror or error}",
                "Choose another port in config.json (offices.listen); 0 is any free one.",
            ) from error
        scheme = "http" if self._context.tls is None else "https"
        shown = f"[{self._context.shown_host}]" if ":" in self._context.shown_host else self._context.shown_host
        self._address = f"{scheme}://{shown}:{self._socket.getsockname()[1]}"

    async def serve(self) -> None:
        """Serve until cancelled; then tell members that they leave, and end their connections."""
        assert self._socket is not None, "start comes first"
        lines = Lines()
        server = SocketIoServer(lines, self._context.desk)
        certificate, key = self._context.tls or (None, None)
        config = server_config(
            Gate(server.app, lines, self._context.version, self._hosts()),
            DeadlineProtocol,
            connections=MAX_CONNECTIONS,
            head_bytes=MAX_HEAD_BYTES,
            drain_seconds=_DRAIN_SECONDS,
            keep_alive_seconds=_KEEP_ALIVE_SECONDS,
            date=False,
            certificate=certificate,
            key=key,
            message_bytes=MAX_FRAME_BYTES,
        )
        config.ws = growing_web_socket()
        config.ws_per_message_deflate = False
        stopping = [anyio.CancelScope(shield=True), anyio.CancelScope(shield=True)]

        async def listen(listening: socket.socket) -> None:
            with stopping[0]:
                await QuietServer(config).serve_until_cancelled(listening, _nothing)

        async def carry() -> None:
            with stopping[1]:
                await server.serve()

        self._context.desk.carried_by(server)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(listen, self._socket)
                group.start_soon(carry)
                try:
                    await anyio.sleep_forever()
                finally:
                    # Members hear of it while they are still connected.
                    with anyio.move_on_after(within(LAST_WORDS_SECONDS), shield=True):
                        self._context.desk.dismiss(self._context.offices.close_all(STOPS))
                        await server.close()
                    for scope in stopping:
                        scope.cancel()
        finally:
            self._context.desk.carried_by(None)
            self._socket.close()

    def release(self) -> None:
        """``Face.release``."""
        if self._socket is not None:
            self._socket.close()

    def _hosts(self) -> frozenset[str] | None:
        """Return what ``Host`` may be: on loopback, no name that a page could have."""
        assert self._socket is not None
        if not is_loopback(self._context.host):
            return None
        port = self._socket.getsockname()[1]
        return frozenset(f"{host}:{port}" for host in ("127.0.0.1", "localhost", "[::1]", self._context.host.lower()))


def _nothing() -> None:
    return

"""The control API's Unix socket: ours alone by its mode, by its directory, and by the uid of whoever connects.

An agent that this daemon runs has the same uid: it is known by its process, and gets what policy allows agents.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import structlog

from sublet.daemon.config.paths import Home
from sublet.daemon.control.routes import ControlApi
from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.http_server import QuietServer, server_config
from sublet.daemon.net.unix_socket import bind_private, remove
from sublet.daemon.operations.answers import OWNER
from sublet.daemon.operations.table import OperationTable
from sublet.policy.decision import Subject
from sublet.unix_sockets import peer_pid, peer_uid

MAX_CONNECTIONS = 256
MAX_HEAD_BYTES = 32 << 10
STOP_SECONDS = 1
"""How long requests under way may take to end when the daemon stops; those that wait end at once."""

log = structlog.get_logger(__name__)


class OwnerOnlyProtocol(DeadlineProtocol):
    """HTTP/1.1 for connections of our own uid; others are cut before a byte of theirs is read."""

    cuts_stuck_readers = False  # who pages through the output of a command reads on when they turn the page
    _refused = False
    identify: Callable[[int], Subject | None]
    """Returns the agent that a process belongs to, if any."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Check the peer's uid first of all, and whose process it is."""
        connection = transport.get_extra_info("socket")
        uid, pid = peer_uid(connection), peer_pid(connection)
        if uid == os.getuid():
            try:
                agent = self.identify(pid)
            except ProcessLookupError:
                log.warning("control socket: a process that is gone, or an agent's that is not at work, was refused")
            else:
                self.app_state = {**self.app_state, "caller": agent or OWNER}
                self.address = f"process {pid}"
                super().connection_made(transport)
                return
        else:
            log.warning("control socket: a connection of another user was refused", uid=uid)
        self._refused = True
        transport.abort()

    def data_received(self, data: bytes) -> None:
        """Ignore what a refused peer has sent."""
        if not self._refused:
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, unless it never was one."""
        if not self._refused:
            super().connection_lost(exc)


class ControlServer:
    """Serves the control API on ``home.control_socket``; the caller holds the instance lock."""

    def __init__(
        self,
        home: Home,
        table: OperationTable,
        identify: Callable[[int], Subject | None],
    ) -> None:
        self._identify = identify
        self._control = ControlApi(table)
        self._path = home.control_socket
        self._socket: socket.socket | None = None

    @property
    def address(self) -> str:
        """Path of the socket."""
        return self._path

    async def start(self) -> None:
        """Bind and listen; connections made from now on are answered once ``serve`` runs.

        Raises:
            SubletError: ``UNAVAILABLE`` where the socket can't be made.
        """
        self._socket = bind_private(self._path)

    async def serve(self) -> None:
        """Serve until cancelled, then end what waits, let the rest finish and remove the socket."""
        assert self._socket is not None, "start() comes first"
        identified = type("IdentifiedProtocol", (OwnerOnlyProtocol,), {"identify": staticmethod(self._identify)})
        config = server_config(
            self._control.app(),
            identified,
            connections=MAX_CONNECTIONS,
            head_bytes=MAX_HEAD_BYTES,
            drain_seconds=STOP_SECONDS,
            date=False,
        )
        try:
            await QuietServer(config).serve_until_cancelled(self._socket, self._control.stop)
        finally:
            self._socket.close()
            remove(self._path)

    def release(self) -> None:
        """``Face.release``."""
        if self._socket is not None:
            self._socket.close()

"""The MCP face of the daemon: a Unix socket on which every ``sublet mcp`` is one session (DESIGN 3, 5).

Nothing here imports the MCP SDK before ``start``: it takes most of a second, and only a daemon needs it.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import SocketAttribute

from sublet.policy.model import Subject
from sublet.protocol.errors import LocalCode, SubletError

if TYPE_CHECKING:
    from anyio.abc import SocketListener, SocketStream

    from sublet.daemon.ports import FaceContext
    from sublet.mcp_server.server import SubletServer

log = logging.getLogger(__name__)

SOCKET_NAME = "mcp.sock"
SOCKET_MODE = 0o600
MAX_SESSIONS = 64
MAX_REFUSALS = 16
"""Connections beyond ``MAX_SESSIONS`` that are told why at once; further ones are just closed."""
BACKLOG = 128
PUMP_WAIT_SECONDS = 30.0
PUMP_RETRY_SECONDS = 1.0
PUMP_PAUSE_SECONDS = 0.1
"""Between two rounds of notifications, so that a talkative delegation costs each host ten lines a second at most."""
PUMP_PAGE = 500
_CREDENTIALS = struct.Struct("3i")


class McpFace:
    """Serves MCP hosts. Loaded by the daemon as ``sublet.mcp_server.host:McpFace``."""

    def __init__(self, context: FaceContext) -> None:
        self._context = context
        self._path = context.runtime_dir / SOCKET_NAME
        self._listener: SocketListener | None = None
        self._server: SubletServer | None = None
        self._open = 0

    @property
    def address(self) -> str:
        """Path of the socket."""
        return str(self._path)

    async def start(self) -> None:
        """Bind; hosts that connect from now on are served.

        Raises:
            SubletError: ``UNAVAILABLE`` where the socket can't be made.
        """
        # In a thread, so that the daemon's other faces answer meanwhile.
        module = await anyio.to_thread.run_sync(partial(importlib.import_module, "sublet.mcp_server.server"))
        self._server = module.SubletServer(self._context.api, self._context.version)
        try:
            self._listener = await anyio.create_unix_listener(self._path, mode=SOCKET_MODE, backlog=BACKLOG)
        except OSError as error:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the MCP socket {self._path} can't be made: {error.strerror or error}",
                "Choose another place with SUBLET_HOME.",
            ) from error

    async def serve(self) -> None:
        """Serve until cancelled; then all connections are cut, and their relays wait for the next daemon."""
        assert self._listener is not None, "start comes first"
        try:
            async with self._listener, anyio.create_task_group() as group:
                group.start_soon(self._pump)
                await self._listener.serve(self._accept, group)
        finally:
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()

    async def _accept(self, stream: SocketStream) -> None:
        from sublet.mcp_server import connection

        assert self._server is not None
        self._open += 1
        try:
            async with stream:
                uid = peer_uid(stream.extra(SocketAttribute.raw_socket))  # noqa: S610 - anyio's accessor, not Django's
                if uid != os.getuid():
                    log.warning("refused an MCP connection of user %d", uid)
                elif self._open <= MAX_SESSIONS:
                    with self._server.connected() as session:
                        await connection.serve_connection(stream, self._server.low, session, self._server.options)
                elif self._open <= MAX_SESSIONS + MAX_REFUSALS:
                    why = f"UNAVAILABLE: {MAX_SESSIONS} MCP hosts are connected already. Close some of them."
                    await connection.refuse(stream, why)
        except Exception:  # one host's failure must not end the others' sessions
            log.exception("an MCP session failed")
        finally:
            self._open -= 1

    async def _pump(self) -> None:
        """Turn the daemon's events into update notifications, one task for all sessions."""
        from sublet.mcp_server.resources import uri_of

        assert self._server is not None
        api, caller = self._context.api, Subject(kind="mcp", name="sublet")
        cursor: int | None = None
        while True:
            try:
                if cursor is None:
                    # Nobody is subscribed yet, so what came before is no news.
                    cursor = max((view.cursor for view in await api.list_delegations(caller)), default=0)
                page = await api.events_since(cursor, caller, timeout=PUMP_WAIT_SECONDS, limit=PUMP_PAGE)
            except Exception:  # notifications are a courtesy; without them the tools still work
                log.exception("no update notifications for now")
                await anyio.sleep(PUMP_RETRY_SECONDS)
                continue
            cursor = page.cursor
            # One notification for each delegation, however much happened to it meanwhile.
            for delegation_id in dict.fromkeys(event.delegation_id for event in page.events):
                if delegation_id is not None:
                    await self._server.publish(uri_of(delegation_id))
            if page.events:
                await anyio.sleep(PUMP_PAUSE_SECONDS)


def peer_uid(connection: socket.socket) -> int:
    """Return the user id of the process at the other end of a Unix socket."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return int(_CREDENTIALS.unpack(raw)[1])

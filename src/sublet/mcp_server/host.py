"""The MCP face of the daemon: a Unix socket on which every ``sublet mcp`` is one session (DESIGN 3, 5).

Nothing here imports the MCP SDK before the first host connects: it takes most of a second, and a tenth of the memory of
a daemon that works for others and never sees a host.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import anyio.abc
import anyio.to_thread
import structlog

from sublet.daemon.config.paths import MCP_SOCKET
from sublet.daemon.net.slots import Slots, Standing
from sublet.daemon.net.unix_socket import bind_private, remove
from sublet.policy.decision import Subject
from sublet.stop_time import within
from sublet.tasks import Service, start_alone
from sublet.turns import Turnstile
from sublet.unix_sockets import UnixStream, accept

if TYPE_CHECKING:
    import socket

    from anyio.abc import TaskStatus

    from sublet.mcp_server.context import McpContext
    from sublet.mcp_server.server import SubletServer

log = structlog.get_logger(__name__)

MAX_SESSIONS = 64
MAX_SESSIONS_OF_A_PROCESS = 16
"""A host has one connection of a process of its own; other programs may have some."""
SESSIONS_AT_ONCE = 2
"""Sessions that begin or end in one turn of the loop, each about a millisecond."""
MAX_REFUSALS = 16
"""Connections beyond ``MAX_SESSIONS`` that are told why at once; further ones are just closed."""
LEAVE_SECONDS = 2.0
"""How long what a host waited for may take to be taken back; the daemon may be about to stop."""
ACCEPT_PAUSE_SECONDS = 0.1
PUMP_WAIT_SECONDS = 30.0
PUMP_RETRY_SECONDS = 1.0
PUMP_PAUSE_SECONDS = 0.1
"""Between two rounds of notifications, so that a talkative delegation costs each host ten lines a second at most."""
PUMP_PAGE = 500


class _Host:
    """The slot of one host. One that has said something keeps it; its relay would not come back by itself."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.standing = Standing.STRANGE
        self.idle_since = anyio.current_time()
        self.scope = anyio.CancelScope()

    def spoke(self) -> None:
        """Note that it has said something."""
        self.standing = Standing.WORKING

    def give_way(self) -> None:
        """End the connection."""
        self.scope.cancel()


class McpFace:
    """Serves MCP hosts."""

    def __init__(self, context: McpContext) -> None:
        self._context = context
        self._path = str(context.runtime_dir / MCP_SOCKET)
        self._listener: socket.socket | None = None
        self._server: SubletServer | None = None
        self._open = 0
        self._slots = Slots(MAX_SESSIONS)
        self._turnstile = Turnstile(SESSIONS_AT_ONCE)
        self._connected: anyio.Event | None = None
        self._loading = anyio.Lock()
        self._group: anyio.abc.TaskGroup | None = None

    @property
    def address(self) -> str:
        """Path of the socket."""
        return self._path

    @property
    def sessions(self) -> int:
        """How many hosts are connected."""
        return self._open

    async def start(self) -> None:
        """Bind; hosts that connect from now on are served.

        Raises:
            SubletError: ``UNAVAILABLE`` where the socket can't be made.
        """
        self._listener = bind_private(self._path)

    async def serve(self) -> None:
        """Serve until cancelled; then all connections are cut, and their relays wait for the next daemon."""
        assert self._listener is not None, "start comes first"
        try:
            async with anyio.create_task_group() as group:
                self._group = group
                while True:
                    try:
                        stream = await accept(self._listener)
                    except OSError as error:
                        log.warning("no MCP connection could be accepted", reason=str(error))
                        await anyio.sleep(ACCEPT_PAUSE_SECONDS)
                        continue
                    start_alone(group, "an MCP host", self._attend, stream)
        finally:
            self._listener.close()
            remove(self._path)

    def release(self) -> None:
        """``Face.release``."""
        if self._listener is not None:
            self._listener.close()

    async def _loaded(self) -> SubletServer:
        """Return what serves the sessions, made for the first of them."""
        async with self._loading:
            if self._server is None:
                assert self._group is not None, "only whoever is served comes here"
                # In a thread, so that the daemon's other faces answer meanwhile.
                made = await anyio.to_thread.run_sync(_server_class)
                context = self._context
                server = made(context.called_by, context.calls, context.web_page, context.version)
                await self._group.start(self._pump, server)
                self._context.services.start(self._group, Service("mcp updates of rooms", server.room_updates.serve))
                self._server = server
            return self._server

    async def _attend(self, stream: UnixStream) -> None:
        self._open += 1
        if self._connected is not None:
            self._connected.set()
        host = _Host(f"process {stream.peer_pid}")
        of_process = self._slots.working(host.address)
        free = self._slots.take(host) and of_process < MAX_SESSIONS_OF_A_PROCESS
        try:
            with host.scope:
                await self._serve(stream, host, free=free)
        finally:
            self._slots.leave(host)
            stream.close()
            self._open -= 1

    async def _serve(self, stream: UnixStream, host: _Host, *, free: bool) -> None:
        try:
            if stream.peer_uid != os.getuid():
                log.warning("an MCP connection of another user was refused", uid=stream.peer_uid)
            elif free:
                # An agent that works here for somebody else is known by its process, whatever it says it is.
                agent = self._context.identify(stream.peer_pid)
                if not await stream.spoken():
                    return
                server = await self._loaded()
                from sublet.mcp_server import connection

                await self._turnstile.passed()
                with server.connected(agent) as session:
                    try:
                        await connection.serve_connection(
                            stream, server.low, session, server.options, host.spoke, self._turnstile
                        )
                    finally:
                        with anyio.move_on_after(within(LEAVE_SECONDS), shield=True):
                            await server.left(session)
            elif self._open <= MAX_SESSIONS + MAX_REFUSALS:
                from sublet.mcp_server import connection

                why = f"UNAVAILABLE: {MAX_SESSIONS} MCP hosts are connected already. Close some of them."
                await connection.refuse(stream, why)
        except ProcessLookupError:
            log.warning("an MCP connection of a process that is gone, or of an agent not at work, was refused")
        except Exception:  # one host's failure must not end the others' sessions
            log.exception("an MCP session failed")

    async def _pump(self, server: SubletServer, *, task_status: TaskStatus[None]) -> None:
        """Turn the daemon's events into update notifications, one task for all sessions."""
        from sublet.daemon.api.delegation_fields import ListNewest
        from sublet.daemon.api.delegations import LIST_DELEGATIONS
        from sublet.daemon.api.events import READ_EVENTS, ReadEvents
        from sublet.mcp_server.resources import uri_of

        told = False
        calls = self._context.called_by(Subject(kind="mcp", name="sublet"))
        cursor: int | None = None
        while True:
            try:
                if cursor is None:
                    # Nobody is subscribed yet, so what came before is no news.
                    newest = await calls.call(LIST_DELEGATIONS, ListNewest())
                    cursor = max((view.cursor for view in newest), default=0)
                if not told:
                    task_status.started()
                    told = True
                if not self._open:
                    # Without hosts nobody is told, so nothing is read, and the audit log has no entries of it.
                    self._connected = anyio.Event()
                    await self._connected.wait()
                news = ReadEvents(cursor=cursor, timeout=PUMP_WAIT_SECONDS, limit=PUMP_PAGE)
                page = await calls.call(READ_EVENTS, news)
            except Exception:  # notifications are a courtesy; without them the tools still work
                log.exception("no update notifications for now")
                if not told:
                    task_status.started()
                    told = True
                await anyio.sleep(PUMP_RETRY_SECONDS)
                continue
            cursor = page.cursor
            # One notification for each delegation, however much happened to it meanwhile.
            for delegation_id in dict.fromkeys(event.delegation_id for event in page.events):
                if delegation_id is not None:
                    await server.publish(uri_of(delegation_id))
            if page.events:
                await anyio.sleep(PUMP_PAUSE_SECONDS)


def _server_class() -> type[SubletServer]:
    """Return what serves sessions. It loads the MCP SDK, which takes most of a second."""
    from sublet.mcp_server.server import SubletServer

    return SubletServer

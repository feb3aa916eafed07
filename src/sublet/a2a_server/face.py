"""The A2A face of the daemon: binds, serves and stops (DESIGN 3, 4.2)."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Mapping, Sequence

import anyio
from a2a.types import AgentCard, Message, Role, Task, TaskState

from sublet.a2a_server.agent_executor import SubletAgentExecutor
from sublet.a2a_server.auth import Authenticator, Credentials
from sublet.a2a_server.caller import peer_of_owner
from sublet.a2a_server.context import A2AContext
from sublet.a2a_server.context_builder import AwcpContextBuilder
from sublet.a2a_server.delegated import DelegatedWork
from sublet.a2a_server.ends import Ends
from sublet.a2a_server.handler import SubletRequestHandler
from sublet.a2a_server.hosts import AllowedHosts
from sublet.a2a_server.invites import PendingInvites
from sublet.a2a_server.moving import MovedRoute
from sublet.a2a_server.pairing import PairingRoute
from sublet.a2a_server.plain import PlainAnswers
from sublet.a2a_server.routes import build_app
from sublet.a2a_server.stopping import Stopping
from sublet.a2a_server.task_schema import STORE_NAME
from sublet.a2a_server.task_store import SqliteTaskStore
from sublet.a2a_server.work import is_delegation
from sublet.a2a_wire.card import make_card
from sublet.a2a_wire.parts import to_part
from sublet.a2a_wire.signer import signed
from sublet.daemon.net.acceptor import Acceptor
from sublet.daemon.net.addresses import is_loopback, is_wildcard, outward_address
from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.http_server import QuietServer, server_config
from sublet.daemon.net.tcp_socket import listen_tcp
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import AWCP_URI, Error
from sublet.stop_time import within
from sublet.supervisor.agent_config import AgentConfig
from sublet.supervisor.readiness import unable

LOOK_SECONDS = 5.0
"""How old may be what the card tells of programs that are missing."""
STOP_SECONDS = 3.0
_LAST_WORDS_SECONDS = 0.5
"""How long streams may still tell the end of their tasks when we stop."""
_DRAIN_SECONDS = 1
MAX_CONNECTIONS = 256
MAX_HEADER_BYTES = 32 << 10
_KEEP_ALIVE_SECONDS = 30

# These log what they were sent when it is malformed, and what they were sent may hold a credential.
_TELLTALES = (
    "a2a.server.routes.jsonrpc_dispatcher",
    "a2a.server.routes.rest_dispatcher",
    "a2a.utils.error_handlers",
    "a2a.compat.v0_3.jsonrpc_adapter",
)


class A2AFace:
    """Serves A2A on one TCP socket.

    Args:
        context: what the composition root provides.
    """

    def __init__(self, context: A2AContext) -> None:
        self._context = context
        self._stopping = Stopping()
        self._invites = PendingInvites()
        self._store = SqliteTaskStore(context.state_dir / STORE_NAME, self._invites.answered)
        self._address = ""
        self._card: tuple[tuple[AgentConfig, ...], dict[str, str], AgentCard] | None = None
        self._looked_at = 0.0
        self._socket: socket.socket | None = None
        self._server: QuietServer | None = None
        self._acceptor: Acceptor | None = None
        self._handler: SubletRequestHandler | None = None

    @property
    def address(self) -> str:
        """Base URL by which we are reached, without a slash at its end."""
        return self._address

    async def start(self) -> None:
        """Bind, open the task store and close what a former process left open; callers wait until ``serve`` runs.

        Raises:
            SubletError: ``UNAVAILABLE`` where the socket can't be bound; ``INVALID_ARGUMENT`` where it would listen
                beyond this machine without TLS.
        """
        self._socket = self._bind()
        try:
            await self._start(self._socket)
        except BaseException:
            self._socket.close()
            await self.aclose()
            raise

    async def serve(self) -> None:
        """Serve until cancelled; then end streams and running work within ``STOP_SECONDS``."""
        try:
            assert self._server is not None
            assert self._acceptor is not None
            async with anyio.create_task_group() as group:
                group.start_soon(self._acceptor.serve)
                await self._server.main_loop()
        finally:
            with anyio.CancelScope(shield=True):
                await self.aclose()

    def release(self) -> None:
        """``Face.release``."""
        if self._socket is not None:
            self._socket.close()

    async def aclose(self) -> None:
        """Stop; does nothing the second time."""
        await self._stopping.stop(within(_LAST_WORDS_SECONDS))
        server, self._server = self._server, None
        handler, self._handler = self._handler, None
        with anyio.move_on_after(within(STOP_SECONDS)):
            if server is not None:
                await server.shutdown(sockets=[self._socket] if self._socket else None)
            if handler is not None:
                await handler.aclose()
        await self._store.aclose()

    async def card(self) -> AgentCard:
        """Return the signed card of the agents that are offered now, and of what each of them lacks."""
        agents = tuple(self._context.agents())
        now = time.monotonic()
        if self._card is not None and self._card[0] == agents and now - self._looked_at < LOOK_SECONDS:
            return self._card[2]
        self._looked_at = now
        lacking = await asyncio.to_thread(_lacking, agents)
        if self._card is None or self._card[:2] != (agents, lacking):
            self._card = (agents, lacking, self._make_card(agents, lacking))
        return self._card[2]

    async def _start(self, bound: socket.socket) -> None:
        context = self._context
        self._address = (context.public_url or self._local_url(bound)).rstrip("/")
        await self._store.open()
        await self._fail_orphans()
        card = await self.card()
        self._handler = self._build_handler(card)
        for name in _TELLTALES:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        app = build_app(
            self._handler,
            card,
            self.card,
            PairingRoute(context.pairing),
            MovedRoute(context.whereabouts),
            AllowedHosts(context.host, context.public_url),
            Authenticator(
                Credentials(
                    context.fingerprint,
                    context.find_peer,
                    context.find_token,
                    context.key_changed,
                    context.nonces,
                    context.admits,
                )
            ),
            self._stopping,
        )
        certificate, key = context.tls or (None, None)
        config = server_config(
            app,
            DeadlineProtocol,
            connections=MAX_CONNECTIONS,
            head_bytes=MAX_HEADER_BYTES,
            drain_seconds=_DRAIN_SECONDS,
            keep_alive_seconds=_KEEP_ALIVE_SECONDS,
            certificate=certificate,
            key=key,
        )
        config.load()
        server = self._server = QuietServer(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[])

        def connection() -> DeadlineProtocol:
            kind = config.http_protocol_class
            assert issubclass(kind, DeadlineProtocol)
            return kind(config, server.server_state, server.lifespan.state)

        self._acceptor = Acceptor(bound, connection, config.ssl)

    def _make_card(self, agents: Sequence[AgentConfig], lacking: Mapping[str, str]) -> AgentCard:
        context = self._context
        return make_card(
            agents,
            url=self._address,
            version=context.version,
            node_id=context.node_id,
            key=context.key,
            fingerprint=context.fingerprint,
            bus=context.bus,
            lacking=lacking,
        )

    def _build_handler(self, card: AgentCard) -> SubletRequestHandler:
        context, ends = self._context, Ends()
        delegated = DelegatedWork(context.executor, context.key, ends)
        executor = SubletAgentExecutor(delegated, PlainAnswers(context.messages, ends), ends)
        builder = AwcpContextBuilder(self._store, context.executor, self._invites, context.fingerprint, context.nonces)
        return SubletRequestHandler(executor, self._store, card, builder, context.executor, delegated)

    def _bind(self) -> socket.socket:
        host, port = self._context.host, self._context.port
        if not is_loopback(host) and self._context.tls is None:
            raise SubletError(
                LocalCode.INVALID_ARGUMENT,
                f"refusing to listen on {host} without TLS",
                "Give a certificate and key, or listen on 127.0.0.1.",
            )
        try:
            return listen_tcp(host, port, MAX_CONNECTIONS)
        except OSError as error:
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"can't listen on {host}:{port}: {error.strerror or error}",
                "Choose another address with --a2a HOST:PORT; port 0 takes any free one.",
            ) from error

    def _local_url(self, bound: socket.socket) -> str:
        host, port = bound.getsockname()[:2]
        if is_wildcard(host):
            host = outward_address(ipv6=bound.family == socket.AF_INET6)
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._context.tls else 'http'}://{shown}:{port}"

    async def _fail_orphans(self) -> None:
        """End the tasks whose work died with a former process: whoever asks must not see them working for ever."""
        for owner, task in await self._store.orphans():
            task.status.state = TaskState.TASK_STATE_FAILED
            task.status.timestamp.GetCurrentTime()
            task.status.ClearField("message")
            if is_delegation(task):
                task.status.message.CopyFrom(self._orphan_error(owner, task))
            await self._store.save_for(owner, task)

    def _orphan_error(self, owner: str, task: Task) -> Message:
        error = Error(
            delegation_id=task.context_id,
            code=ErrorCode.TASK_FAILED,
            message="the executor's daemon was restarted while it worked on this task",
            hint="Delegate again.",
        )
        peer = self._context.find_peer(peer_of_owner(owner) or "")
        if peer is not None:
            error = signed(error, self._context.key, peer.fingerprint)
        return Message(
            message_id=f"{task.id}-orphan",
            task_id=task.id,
            context_id=task.context_id,
            role=Role.ROLE_AGENT,
            parts=[to_part(error)],
            extensions=[AWCP_URI],
        )


def _lacking(agents: Sequence[AgentConfig]) -> dict[str, str]:
    """Return what keeps agents from working, by their ids. Looks at files; blocks for a moment."""
    return {one.id: lack.what for one in agents if (lack := unable(one)) is not None}

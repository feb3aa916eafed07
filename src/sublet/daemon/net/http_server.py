"""uvicorn as a part of the daemon: it leaves signals alone, and sleeps while nothing happens."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import structlog
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sublet import deadlines
from sublet.daemon.net import uvicorn_parts
from sublet.daemon.net.acceptor import Acceptor
from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.slots import Slots
from sublet.stop_time import within
from sublet.turns import Turnstile

DATE_SECONDS = 1.0
"""How often the ``Date`` of answers is set; uvicorn by itself wakes up ten times as often."""
DRAIN_LOOK_SECONDS = 0.01
"""How often a server that stops looks whether its requests have ended."""

log = structlog.get_logger(__name__)


def server_config(
    app: ASGIApp,
    protocol: type[DeadlineProtocol],
    *,
    connections: int,
    head_bytes: int,
    drain_seconds: int,
    keep_alive_seconds: int = 5,
    date: bool = True,
    certificate: Path | None = None,
    key: Path | None = None,
    message_bytes: int | None = None,
) -> uvicorn.Config:
    """Return the configuration that the daemon's HTTP servers share: no logs of its own, no proxies.

    Args:
        app: what answers.
        protocol: one connection.
        connections: how many there may be at one time; for a further one an idle one gives way (``slots``).
        head_bytes: of a request line with its headers, at most.
        drain_seconds: how long requests under way may take to end when the server stops.
        keep_alive_seconds: how long a connection may be idle between two requests.
        date: whether answers have a ``Date``, as RFC 9110 section 6.6.1 wants of servers with a clock.
        certificate: PEM file, for TLS.
        key: PEM file of its private key.
        message_bytes: what a WebSocket message may have; None for no WebSockets.

    Raises:
        SubletError: ``UNAVAILABLE``: this version of uvicorn lacks what bounds a connection.
    """
    uvicorn_parts.check()
    return uvicorn.Config(
        InTurn(app),
        http=type(protocol.__name__, (protocol,), {"slots": Slots(connections)}),
        ws="none" if message_bytes is None else "websockets-sansio",
        ws_max_size=message_bytes or 1,
        loop="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=date,
        h11_max_incomplete_event_size=head_bytes,
        timeout_graceful_shutdown=drain_seconds,
        timeout_keep_alive=keep_alive_seconds,
        ssl_certfile=certificate,
        ssl_keyfile=key,
    )


class InTurn:
    """Begins a few requests in a turn of the loop, and ends a few of those whose callers are gone.

    Args:
        app: what answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._turnstile = Turnstile()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect":
                await self._turnstile.passed()
            return message

        await self._turnstile.passed()
        await self._app(scope, received, send)


class _NoStrangersDoing(logging.Filter):
    """Leaves out what uvicorn says of each malformed request: whoever floods us must not flood the log."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Tell whether the record stays."""
        return not record.getMessage().startswith(
            ("Invalid HTTP request", "Unsupported upgrade", "No supported WebSocket")
        )


_QUIET = _NoStrangersDoing()


class QuietServer(uvicorn.Server):
    """uvicorn's server without its signal handlers, which are the daemon's, and without its ten ticks a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        logging.getLogger("uvicorn.error").addFilter(_QUIET)
        self._leaving = asyncio.Event()

    def leave(self) -> None:
        """Begin to shut down."""
        self.should_exit = True
        self._leaving.set()

    async def serve_until_cancelled(
        self,
        listening: socket.socket,
        stop: Callable[[], None],
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        """Serve on ``listening``; when cancelled, call ``stop`` to end what waits, and let the rest finish.

        Args:
            listening: a socket that listens; the caller closes it.
            stop: ends streams and long polls.
            tls: returns what a handshake is answered with now; None for what the configuration says.
        """
        listening.setblocking(False)
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        await self.startup(sockets=[])
        kind = self.config.http_protocol_class
        assert issubclass(kind, DeadlineProtocol)

        def connection() -> DeadlineProtocol:
            return kind(self.config, self.server_state, self.lifespan.state)

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(Acceptor(listening, connection, tls or self.config.ssl).serve)
                await self.main_loop()
        finally:
            stop()
            # anyio cancels again and again what it has cancelled; the shield lets the stop come to its end.
            with anyio.CancelScope(shield=True):
                await self.shutdown(sockets=[listening])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests under way end in the time of the configuration, or in what is left of the daemon's stop.

        Where none is under way this takes no time; uvicorn by itself waits for a tenth of a second all the same.
        """
        for listening in sockets or []:
            listening.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        drain = self.config.timeout_graceful_shutdown
        try:
            async with deadlines.timeout(None if drain is None else within(drain)):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn tells nobody
                    await asyncio.sleep(DRAIN_LOOK_SECONDS)
        except TimeoutError:
            log.warning("requests are cut off by the stop", requests=len(self.server_state.tasks))
            for task in self.server_state.tasks:
                task.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def main_loop(self) -> None:
        """Sleep until told to leave; where answers have a ``Date``, wake up to set it."""
        pause = DATE_SECONDS if self.config.date_header else None
        # To uvicorn the 0 means a full second: headers are made anew then.
        while not await self.on_tick(0):
            try:
                async with deadlines.timeout(pause):
                    await self._leaving.wait()
            except TimeoutError:
                continue

"""The web page as a face of the daemon: binds on loopback, serves and stops (DESIGN 3, 10)."""

from __future__ import annotations

import errno
import socket

from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.daemon.net.http_server import QuietServer, server_config
from sublet.daemon.net.tcp_socket import listen_tcp
from sublet.protocol.errors import LocalCode, SubletError
from sublet.web.context import WebContext
from sublet.web.headers import OwnPageOnly
from sublet.web.routes import PageApi
from sublet.web.sessions import Sessions

HOST = "127.0.0.1"
"""The only address: what is shown and done here is for the person at this machine."""
MAX_CONNECTIONS = 96
MAX_HEAD_BYTES = 16 << 10
BACKLOG = 64
SESSIONS_FILE = "web-sessions.json"
_DRAIN_SECONDS = 1
_KEEP_ALIVE_SECONDS = 30


class WebFace:
    """Serves the page, unless it is switched off."""

    def __init__(self, context: WebContext) -> None:
        self._context = context
        self._api = PageApi(context.operations, context.logins, Sessions(context.state_dir / SESSIONS_FILE))
        self._socket: socket.socket | None = None
        self._address = ""

    @property
    def address(self) -> str:
        """The page's origin, without a slash at its end."""
        return self._address

    async def start(self) -> None:
        """Bind; browsers that connect from now on are answered once ``serve`` runs.

        Raises:
            SubletError: ``UNAVAILABLE`` where the port can't be listened on.
        """
        self._socket = self._bind()
        self._address = f"http://{HOST}:{self._socket.getsockname()[1]}"

    async def serve(self) -> None:
        """Serve until cancelled, then end streams and let the rest finish."""
        assert self._socket is not None, "start comes first"
        host = self._address.removeprefix("http://")
        config = server_config(
            OwnPageOnly(self._api.app(cookie=f"sublet_{host.rpartition(':')[2]}"), host),
            DeadlineProtocol,
            connections=MAX_CONNECTIONS,
            head_bytes=MAX_HEAD_BYTES,
            drain_seconds=_DRAIN_SECONDS,
            keep_alive_seconds=_KEEP_ALIVE_SECONDS,
            date=False,
        )
        try:
            await QuietServer(config).serve_until_cancelled(self._socket, self._api.stop)
        finally:
            self._socket.close()

    def release(self) -> None:
        """``Face.release``."""
        if self._socket is not None:
            self._socket.close()

    def _bind(self) -> socket.socket:
        try:
            return listen_tcp(HOST, self._context.port, BACKLOG)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and not self._context.chosen:
                # Somebody was quicker since it was looked at; nobody has to find the page but by its link.
                return listen_tcp(HOST, 0, BACKLOG)
            raise SubletError(
                LocalCode.UNAVAILABLE,
                f"the web page can't listen on {HOST}:{self._context.port}: {error.strerror or error}",
                "Choose another port with --web PORT; 0 is any free one, and --web off goes without.",
            ) from error

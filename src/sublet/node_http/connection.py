"""One connection of a node: the key that its handshake has proven goes with each of its requests."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from typing import Final

from sublet.daemon.net.http_connection import DeadlineProtocol
from sublet.node_http.certificates import key_of

KEY: Final = "node_key"
"""In ``scope["state"]``: the raw key that TLS has proven; None without TLS."""


class NodeConnection(DeadlineProtocol):
    """See the module."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        """Take note of the key; by TLS nobody without one that is listed comes so far."""
        tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
        key = None if tls is None else key_of(tls.getpeercert(binary_form=True), datetime.now(UTC))
        self.app_state = {**self.app_state, KEY: key}
        super().connection_made(transport)

"""Streams over Unix sockets on asyncio's own primitives, which know who is at the other end.

anyio's socket streams log an error when a connection is cancelled in the moment in which data arrives, as happens to
all of them when a daemon stops.
"""

from __future__ import annotations

import asyncio
import socket

from sublet.daemon.net.unix_socket import peer_pid, peer_uid


class UnixStream:
    """One connection; owns ``connection``."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection

    @property
    def peer_uid(self) -> int:
        """User id of the process at the other end."""
        return peer_uid(self._socket)

    @property
    def peer_pid(self) -> int:
        """Process id of the process that connected."""
        return peer_pid(self._socket)

    async def receive(self, size: int) -> bytes:
        """Return up to ``size`` bytes; none when the other end has closed or is gone."""
        try:
            return await asyncio.get_running_loop().sock_recv(self._socket, size)
        except ConnectionError:
            return b""

    async def send(self, data: bytes) -> bool:
        """Send all of ``data``; False where nobody takes it any more."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, data)
        except ConnectionError:
            return False
        return True

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


async def accept(listener: socket.socket) -> UnixStream:
    """Wait for the next connection.

    Raises:
        OSError: it was gone at once, or there are no descriptors left.
    """
    connection, _ = await asyncio.get_running_loop().sock_accept(listener)
    return UnixStream(connection)

"""Streams over Unix sockets on asyncio's own primitives, which know who is at the other end.

anyio's socket streams log an error when a connection is cancelled in the moment in which data arrives, as happens to
all of them when a daemon stops.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Final

from sublet.accepting import accept as accept_socket

_UCRED: Final = struct.Struct("3i")
"""pid, uid and gid."""


class UnixStream:
    """One connection; owns ``connection``."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._early = b""

    @property
    def peer_uid(self) -> int:
        """User id of the process at the other end."""
        return peer_uid(self._socket)

    @property
    def peer_pid(self) -> int:
        """Process id of the process that connected; 0 where it is in a namespace that we don't see."""
        return peer_pid(self._socket)

    async def spoken(self) -> bool:
        """Wait for the first byte, which ``receive`` returns; False where the other end closes without one.

        A connection that says nothing costs its slot alone, where whatever serves it is made after this.
        """
        self._early = self._early or await self.receive(1)
        return bool(self._early)

    async def receive(self, size: int) -> bytes:
        """Return up to ``size`` bytes; none when the other end has closed or is gone.

        Others have their turn each time: asyncio returns at once what has arrived already.
        """
        if self._early:
            early, self._early = self._early, b""
            return early
        await asyncio.sleep(0)
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
    """Wait for the next connection, as ``accepting.accept`` does.

    Raises:
        OSError: it was gone at once, or there are no descriptors left.
    """
    connection, _ = await accept_socket(listener)
    return UnixStream(connection)


def peer_uid(connection: socket.socket) -> int:
    """Return the uid of the process at the other end of a Unix socket, as the kernel noted it at ``connect``."""
    return _peer(connection)[1]


def peer_pid(connection: socket.socket) -> int:
    """Return the pid of the process that connected; 0 where it is in a namespace that we don't see."""
    return _peer(connection)[0]


def _peer(connection: socket.socket) -> tuple[int, int]:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    pid, uid, _ = _UCRED.unpack(raw)
    return int(pid), int(uid)

"""Unix sockets on asyncio's own primitives: a listener with mode 0600, and streams that know who is at the other end.

anyio's socket streams log an error when a connection is cancelled in the moment in which data arrives, as happens to
all of them when a daemon stops.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
from pathlib import Path

SOCKET_MODE = 0o600
BACKLOG = 128
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class UnixStream:
    """One connection; owns ``connection``."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection

    @property
    def peer_uid(self) -> int:
        """User id of the process at the other end."""
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return int(_CREDENTIALS.unpack(raw)[1])

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


def listen(path: Path) -> socket.socket:
    """Return a socket that listens at ``path``, in place of one that a dead daemon left there.

    Raises:
        OSError: it can't be made.
    """
    if path.exists() and stat.S_ISSOCK(path.lstat().st_mode):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        # Nobody else can reach it before it has its mode: the directory is 0700.
        listener.bind(str(path))
        os.chmod(path, SOCKET_MODE)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


async def accept(listener: socket.socket) -> UnixStream:
    """Wait for the next connection.

    Raises:
        OSError: it was gone at once, or there are no descriptors left.
    """
    connection, _ = await asyncio.get_running_loop().sock_accept(listener)
    return UnixStream(connection)

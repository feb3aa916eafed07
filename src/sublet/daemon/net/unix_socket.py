"""Unix sockets of the daemon's own user: private from the first moment on, and with who is at the other end."""

from __future__ import annotations

import os
import socket
import stat
import struct

from sublet.protocol.errors import LocalCode, SubletError

BACKLOG = 128
"""Connections that the kernel holds until they are accepted."""
_UCRED = struct.Struct("3i")
"""pid, uid and gid."""


def bind_private(path: str) -> socket.socket:
    """Return a listening, non-blocking Unix socket of mode 0600 at ``path``, in place of one that a killed daemon left.

    Raises:
        SubletError: ``UNAVAILABLE`` where something else lies there or it can't be bound.
    """
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise SubletError(LocalCode.UNAVAILABLE, f"{path} is not a socket", "Move it aside.")
        os.unlink(path)
    except FileNotFoundError:
        pass
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before bind, so that the socket is private from the first moment on.
        os.fchmod(made.fileno(), 0o600)
        made.bind(path)
        os.chmod(path, 0o600)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError as error:
        made.close()
        raise SubletError(
            LocalCode.UNAVAILABLE, f"{path} can't be bound: {error.strerror}", "Choose another SUBLET_HOME."
        ) from None
    return made


def remove(path: str) -> None:
    """Remove the socket at ``path``; that it is gone already is no error."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


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

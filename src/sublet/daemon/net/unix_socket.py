"""Listening Unix sockets of the daemon's own user, private from the first moment on."""

from __future__ import annotations

import os
import socket
import stat

from sublet.protocol.errors import LocalCode, SubletError

BACKLOG = 1024
"""Connections that the kernel holds until they are accepted."""


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

"""Listening TCP sockets of the faces."""

from __future__ import annotations

import socket


def listen_tcp(host: str, port: int, backlog: int) -> socket.socket:
    """Return a non-blocking socket that listens on ``host``, an address, and ``port``, where 0 is any free one.

    Raises:
        OSError: it can't be bound.
    """
    # The protocol is named, unlike in socket.create_server: asyncio switches Nagle's algorithm off for sockets that
    # say they are TCP, and with it every small answer waits 40 ms for an acknowledgement.
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.setblocking(False)
        listener.bind((host, port))
        listener.listen(backlog)
    except BaseException:
        listener.close()
        raise
    return listener

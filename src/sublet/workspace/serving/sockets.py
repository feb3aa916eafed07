"""TCP sockets of the data plane, to listen on and to dial with."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

_BACKLOG: Final = 128


def listening(family: int, address: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> socket.socket:
    """Return a non-blocking socket that listens on ``address``; raises ``OSError``."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


async def connected(host: str, port: int) -> socket.socket:
    """Return a non-blocking socket connected to the first address of ``host`` that answers; raises ``OSError``."""
    loop = asyncio.get_running_loop()
    failure: OSError = OSError("the name has no address")
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # what a peer calls its host may be no name at all
        raise OSError("the name of the host is none") from None
    for family, kind, proto, _, address in found:
        sock = socket.socket(family, kind, proto)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as exc:
            sock.close()
            failure = exc
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure

"""The port at which paired daemons join our bus: listened on from the start on, so that the card can name it.

Two that merely bind a port can share it: whoever listens first has it, and the other one's rooms would not begin. So it
is listened on before rooms run. Whoever calls meanwhile waits in the system's queue.
"""

from __future__ import annotations

import socket
from typing import Final

from sublet.daemon.config.daemon_config import Bus

BACKLOG: Final = 64
"""Callers that wait until the bus takes them; whoever else calls then tries again."""


class BusPort:
    """A port that is listened on, so that nobody else gets it; the bus takes what calls there, whenever it runs.

    Args:
        bus: where it shall be.
        last: where peers have known us so far, which goes before a default.

    Raises:
        SubletError: ``UNAVAILABLE``: a chosen port can't be had.
    """

    def __init__(self, bus: Bus, last: int | None) -> None:
        self.host = bus.listen.host
        wanted = bus.listen.port
        if bus.listen.chosen and wanted:
            self._socket = _listening(self.host, bus.listen.free_port())
        else:
            self._socket = (
                (_listening(self.host, last) if last else None)
                or _listening(self.host, wanted, alone=True)
                or _listening(self.host, 0)
            )

    @property
    def number(self) -> int | None:
        """The port; None where this machine has none left."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else None

    @property
    def listener(self) -> socket.socket | None:
        """The socket that listens; None where this machine has no port left."""
        return self._socket

    @property
    def shown(self) -> str | None:
        """The address as people and Zenoh write it."""
        return None if self.number is None else endpoint(self.host, self.number)

    def close(self) -> None:
        """Give the port back."""
        if self._socket is not None:
            self._socket.close()


def endpoint(host: str, port: int) -> str:
    """Return an address as people and Zenoh write it."""
    return f"tls/{f'[{host}]' if ':' in host else host}:{port}"


def _listening(host: str, port: int, *, alone: bool = False) -> socket.socket | None:
    """Return a socket that listens on a port; None where the port can't be had.

    Args:
        host: the address.
        port: 0 for any.
        alone: only where nobody has merely bound it either, as older daemons do whose rooms have not begun; that can't
            be told of a port that was in use a minute ago.
    """
    kept = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if alone:
            kept.bind((host, port))
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not alone:
            kept.bind((host, port))
        kept.listen(BACKLOG)
    except OSError:
        kept.close()
        return None
    return kept

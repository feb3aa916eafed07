"""The port at which paired daemons join our bus: kept from the start on, so that the card can name it."""

from __future__ import annotations

import socket
from typing import Final

HOST: Final = "127.0.0.1"
"""The bus is plain TCP, so only this machine reaches it."""


class BusPort:
    """A port that is bound, so that nobody else is given it, and not listened on, so that the bus can.

    Args:
        last: where peers have known us so far; another one is taken where that is not free.
    """

    def __init__(self, last: int | None) -> None:
        self._socket = _bound(last or 0) or _bound(0)

    @property
    def number(self) -> int | None:
        """The port; None where this machine has none left."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else None

    def close(self) -> None:
        """Give the port back."""
        if self._socket is not None:
            self._socket.close()


def endpoint(port: int) -> str:
    """Return a port of this machine as Zenoh writes it."""
    return f"tcp/{HOST}:{port}"


def _bound(port: int) -> socket.socket | None:
    kept = socket.socket()
    try:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind((HOST, port))
    except OSError:
        kept.close()
        return None
    return kept

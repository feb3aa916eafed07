"""The port at which paired daemons join our bus: kept from the start on, so that the card can name it."""

from __future__ import annotations

import socket

from sublet.daemon.config.daemon_config import Bus


class BusPort:
    """A port that is bound, so that nobody else is given it, and not listened on, so that the bus can.

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
            self._socket = _bound(self.host, bus.listen.free_port())
        else:
            self._socket = (
                (_bound(self.host, last) if last else None)
                or _bound(self.host, wanted, alone=True)
                or _bound(self.host, 0)
            )

    @property
    def number(self) -> int | None:
        """The port; None where this machine has none left."""
        return int(self._socket.getsockname()[1]) if self._socket is not None else None

    @property
    def address(self) -> tuple[str, int] | None:
        """Where the bus listens; None where this machine has no port left."""
        return None if self.number is None else (self.host, self.number)

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


def _bound(host: str, port: int, *, alone: bool = False) -> socket.socket | None:
    """Return a socket that keeps a port and lets another one listen there; None where the port can't be had.

    Args:
        host: the address.
        port: 0 for any.
        alone: only where nobody else keeps it either, which can't be told of a port that was in use a minute ago.
    """
    kept = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if alone:
            kept.bind((host, port))
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if not alone:
            kept.bind((host, port))
    except OSError:
        kept.close()
        return None
    return kept

"""Carries by the bus of paired daemons where there is a link, and by HTTP else."""

from __future__ import annotations

from sublet.federation.ports import Carrier, KnownNode, What


class Carriers:
    """Implements ``Carrier`` by two others.

    Args:
        bus: reaches paired daemons.
        http: reaches nodes whose keys federation.toml lists.
    """

    def __init__(self, bus: Carrier, http: Carrier) -> None:
        self._bus = bus
        self._http = http

    async def ask(self, node: KnownNode, what: What, payload: bytes) -> bytes | None:
        """``Carrier.ask``."""
        carrier = self._bus if self._bus.reaches(node) else self._http
        return await carrier.ask(node, what, payload)

    def reaches(self, node: KnownNode) -> bool:
        """``Carrier.reaches``."""
        return self._bus.reaches(node) or self._http.reaches(node)

"""Carries by the bus of paired daemons where that reaches a node and it answers there, and by HTTP else."""

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
        """``Carrier.ask``. The same bytes may come on both ways: whoever gets them takes them once."""
        for carrier in (self._bus, self._http):
            # That a relay joins a node, its answer alone tells.
            if carrier.reaches(node) and (answer := await carrier.ask(node, what, payload)) is not None:
                return answer
        return None

    def reaches(self, node: KnownNode) -> bool:
        """``Carrier.reaches``."""
        return self._bus.reaches(node) or self._http.reaches(node)

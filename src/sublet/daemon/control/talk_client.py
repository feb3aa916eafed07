"""Typed client of the area around whom somebody talks with: ``TalkApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.talk_models import Reach, Reached
from sublet.daemon.control.transport import Transport


class TalkClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def reach(self, request: Reach) -> Reached:
        """Return the room of an address."""
        return await self._transport.fetch(Reached, "POST", "/v1/conversations", body=request)

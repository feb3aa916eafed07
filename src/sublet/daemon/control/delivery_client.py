"""Typed client of the area around what became of messages: ``DeliveryApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.delivery_models import AskReceipts, MessageReceipts
from sublet.daemon.control.room_paths import message_path
from sublet.daemon.control.transport import Transport


class DeliveryClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def receipts(self, room_id: str, ref_id: str, request: AskReceipts) -> MessageReceipts:
        """Return what became of a message."""
        path = f"{message_path(room_id, ref_id)}/receipts"
        return await self._transport.fetch(MessageReceipts, "GET", path, request.model_dump(exclude_none=True))

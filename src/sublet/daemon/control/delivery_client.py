"""Typed client of the area around what became of messages: ``DeliveryApi`` as its owner calls it."""

from __future__ import annotations

from sublet.daemon.api.delivery_models import AskReceipts, MessageReceipts
from sublet.daemon.control.room_client import room_path
from sublet.daemon.control.supervisor_client import Transport
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import is_ref_id
from sublet.protocol.text import clean_line


class DeliveryClient:
    """Failures are ``SubletError``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def receipts(self, room_id: str, ref_id: str, request: AskReceipts) -> MessageReceipts:
        """Return what became of a message."""
        if not is_ref_id(ref_id):
            what = f"{clean_line(ref_id, 80)!r} is no id of a message"
            raise SubletError(LocalCode.INVALID_ARGUMENT, what, "See: sublet read ROOM")
        path = f"{room_path(room_id)}/messages/{ref_id}/receipts"
        return await self._transport.fetch(MessageReceipts, "GET", path, request.model_dump(exclude_none=True))

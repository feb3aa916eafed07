"""``DeliveryApi``: what became of messages, for whoever sent them."""

from __future__ import annotations

from sublet.daemon.api.delivery_models import AskReceipts, MessageReceipts, RecipientReceipt
from sublet.daemon.gatekeeper import Gatekeeper
from sublet.daemon.operations.asking import operations
from sublet.daemon.rooms.speaking import Speaking
from sublet.policy.model import Action, Subject


@operations
class DeliveryService:
    """Implements ``DeliveryApi``.

    Args:
        gate: asks policy.
        speaking: knows the caller's entity.
    """

    def __init__(self, gate: Gatekeeper, speaking: Speaking) -> None:
        self._gate = gate
        self._speaking = speaking

    async def receipts(self, room_id: str, ref_id: str, request: AskReceipts, caller: Subject) -> MessageReceipts:
        """``DeliveryApi.receipts``."""
        await self._gate.ask(caller, Action.ROOM_READ, room_id)
        from sublet.messaging.delivery.receipts import Receipt

        service = await self._speaking.service()
        until = Receipt(request.until) if request.until is not None else None
        entity = self._speaking.entity(caller)
        found = await service.delivery.receipts(entity, room_id, ref_id, until, request.wait)
        return MessageReceipts(
            ref_id=found.ref_id,
            room_id=found.room_id,
            created_at=found.created_at,
            receipt=found.receipt.value,
            recipients=[
                RecipientReceipt(entity=one.entity, receipt=one.receipt.value, reason=one.reason)
                for one in found.recipients
            ],
        )

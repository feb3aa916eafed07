"""What the delivery of messages offers faces. Every method asks policy first; failures are ``SubletError``."""

from __future__ import annotations

from typing import Protocol

from sublet.daemon.api.delivery_models import AskReceipts, MessageReceipts
from sublet.policy.model import Subject


class DeliveryApi(Protocol):
    """The operations on messages that were sent."""

    async def receipts(self, room_id: str, ref_id: str, request: AskReceipts, caller: Subject) -> MessageReceipts:
        """Return what became of a message of the caller's, for each recipient.

        Raises:
            SubletError: ``NOT_FOUND``: the caller has sent no such message.
        """

"""What faces exchange with the daemon about what became of messages (DESIGN 6, Delivery)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sublet.daemon.api.base import MAX_WAIT_SECONDS, Request, ToldTime, View

ReceiptState = Literal["undeliverable", "queued", "delivered", "read"]
"""Worst first: not to be delivered any more; durable here; durable at the recipient's daemon; read."""


class AskReceipts(Request):
    """With ``wait`` seconds to wait until all recipients have come as far as ``until``."""

    until: Literal["delivered", "read"] | None = None
    wait: Annotated[float, Field(ge=0, le=MAX_WAIT_SECONDS)] = 0


class RecipientReceipt(View):
    """How far a message has come with one recipient."""

    entity: str
    receipt: ReceiptState
    reason: str = Field(default="", description="Why it goes no further")


class MessageReceipts(View):
    """How far a message has come; ``receipt`` is the least of all recipients."""

    ref_id: str
    room_id: str
    created_at: ToldTime
    receipt: ReceiptState
    recipients: list[RecipientReceipt]

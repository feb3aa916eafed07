"""What became of a message that we sent, for each of its recipients; on the engine's thread."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final, Protocol

from sublet.messaging.builtins.control import control_of
from sublet.messaging.builtins.delivery import AudienceParts, audience
from sublet.messaging.delivery.acknowledged import AcknowledgedParts, is_delivered
from sublet.messaging.extensions.read_receipts import ReceiptParts, has_read
from sublet.messaging.opening.open_documents import OpenDocuments
from sublet.messaging.ports.purge_store import Kind
from sublet.messaging.rooms.standing import pending
from sublet.messaging.rooms.states import RoomStates
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.purge import Gone
from sublet.protocol.times import unix_ms

UNDELIVERABLE_SECONDS: Final = 7 * 86_400.0
"""How long a recipient's daemon may be silent before a message to it counts as undeliverable; it is kept anyway."""

NOT_ACCEPTED: Final = "has not accepted the invitation yet"


class DeliveredParts(AcknowledgedParts, AudienceParts, ReceiptParts, Protocol):
    """The parts of the engine for telling how far a message has come."""

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def documents(self) -> OpenDocuments: ...


class Receipt(StrEnum):
    """How far a message has come with one recipient, worst first."""

    UNDELIVERABLE = "undeliverable"
    QUEUED = "queued"
    DELIVERED = "delivered"
    READ = "read"


@dataclass(frozen=True, slots=True)
class RecipientReceipt:
    """How far a message has come with one recipient, and where it doesn't go on, why."""

    entity: EntityId
    receipt: Receipt
    reason: str = ""


@dataclass(frozen=True, slots=True)
class MessageReceipts:
    """How far a message has come; ``receipt`` is the least of all recipients, ``purged`` that it is gone since."""

    ref_id: RefId
    room_id: RoomId
    created_at: str
    receipt: Receipt
    recipients: tuple[RecipientReceipt, ...]
    purged: bool = False


def receipts_of(
    engine: DeliveredParts, entity: EntityId, room_id: RoomId, ref_id: RefId, patience_seconds: float
) -> MessageReceipts:
    """Return the receipts of a message.

    Args:
        engine: the engine.
        entity: its author, who asks, one of ours.
        room_id: the room.
        ref_id: the message.
        patience_seconds: after which what no daemon has acknowledged is undeliverable.

    Raises:
        SubletError: ``NOT_FOUND``: there is none of this entity's here.
    """
    ref, found = engine.reading.ref_in(room_id, ref_id), engine.store.find_entry(ref_id)
    if ref is None or found is None or ref["author"] != entity:
        raise SubletError(
            LocalCode.NOT_FOUND, f"no message {ref_id} of yours in this room", "Receipts are its author's to see."
        )
    row, item = found
    shard, node = row.doc_id.rpartition("/")[2], engine.documents.open(row.doc_id).elements.node(item)
    assert node is not None, "it is here"
    sent_ms = unix_ms(ref["created_at"]) or 0
    late = engine.now_ms() - sent_ms > patience_seconds * 1_000
    state = engine.rooms.state(room_id)
    members = state.members()

    control = control_of(ref)

    def gone(recipient: EntityId) -> str:
        """Return why a message that steers a recipient steers nothing any more."""
        epoch = engine.epochs.of(recipient)
        over = control is not None and control[0] == recipient and epoch is not None and epoch.hex() != control[1]
        return "its daemon has been started again since; this steers nothing there now" if over else ""

    @cache
    def waiting() -> frozenset[EntityId]:
        """Return who was invited and has not come in."""
        return frozenset(pending(engine.store, state, ()))

    def of(recipient: EntityId) -> RecipientReceipt:
        if has_read(engine, room_id, recipient, ref_id):
            return RecipientReceipt(recipient, Receipt.READ, gone(recipient))
        if is_delivered(engine, room_id, recipient, shard, item):
            return RecipientReceipt(recipient, Receipt.DELIVERED, gone(recipient))
        if recipient not in members:
            return RecipientReceipt(recipient, Receipt.UNDELIVERABLE, "is no member of the room any more")
        if late:
            return RecipientReceipt(recipient, Receipt.UNDELIVERABLE, "its daemon has not answered for too long")
        return RecipientReceipt(
            recipient, Receipt.QUEUED, gone(recipient) or (NOT_ACCEPTED if recipient in waiting() else "")
        )

    recipients = tuple(of(member) for member in audience(engine, room_id, node.seq) if member != entity)
    order = list(Receipt)
    least = min((one.receipt for one in recipients), key=order.index, default=Receipt.QUEUED)
    gone_since = engine.store.purges.rows_named(room_id, Kind.REF, ref_id)
    purged = any(row.what is Gone.MESSAGE for row in gone_since)
    return MessageReceipts(ref_id, room_id, ref["created_at"], least, recipients, purged)

"""Receipts of what we sent, for those who ask and those who wait for them; on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import anyio

from sublet.messaging.accepting.staging import Came
from sublet.messaging.builtins.control import control_of
from sublet.messaging.delivery import acknowledged
from sublet.messaging.delivery.acknowledged import AcknowledgedParts
from sublet.messaging.delivery.acknowledging import Acknowledging
from sublet.messaging.delivery.receipts import MessageReceipts, Receipt, receipts_of
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.extensions.read_receipts import READ_RECEIPTS
from sublet.messaging.ports.network import Sample
from sublet.messaging.schema.fields import FieldsView
from sublet.messaging.syncing.asking import Asking
from sublet.messaging.syncing.wanted import WantedDocument
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RefId, RoomId
from sublet.protocol.ezagent.keys import parse_doc_id

MAX_WAIT_SECONDS: Final = 60.0


class Delivery:
    """What became of our messages.

    Args:
        asking: asks recipients.
        call: runs something with the engine.
        patience_seconds: after which a message that no daemon has acknowledged is undeliverable.
        behind: told of documents of which recipients hold more than we do.
        soon: has something done on the event loop, from any thread.
    """

    def __init__(
        self,
        asking: Asking,
        call: CallEngine,
        patience_seconds: float,
        behind: Callable[[WantedDocument], None],
        soon: Callable[..., None],
    ) -> None:
        self._call = call
        self._patience_seconds = patience_seconds
        self._news = anyio.Event()
        self._acknowledging = Acknowledging(asking, call, self._tell, behind, soon)

    async def run(self) -> None:
        """Acknowledge and ask, until cancelled."""
        await self._acknowledging.run()

    def want(self, room_id: RoomId) -> None:
        """Ask soon for what the others of a room have not acknowledged."""
        self._acknowledging.want(room_id)

    async def say_here(self, room_id: RoomId) -> None:
        """Let those who are in a room know that ours are there now."""
        await self._acknowledging.say_here(room_id)

    def heard(self, sample: Sample) -> None:
        """Take what a recipient has published; any thread may call."""
        room_id = delivery_room(sample.key)
        if room_id is not None:
            self._acknowledging.heard(room_id, sample.payload)

    def arrived(self, came: Iterable[Came]) -> None:
        """Acknowledge what others wrote to timelines, and tell who waits for receipts of what anybody has read."""
        for room_id, part, client, is_ours in came:
            kind, _, name = part.partition("/")
            if kind == "index" and not is_ours:
                self._acknowledging.arrived(room_id, name, client)
            elif name == READ_RECEIPTS:
                self._tell()

    def answer(self, engine: AcknowledgedParts, key: str, body: bytes) -> bytes | None:
        """Answer a member who asks what we hold; None for another key. On the engine's thread.

        Raises:
            Refused: the question is malformed.
        """
        room_id = delivery_room(key)
        return acknowledged.answer(engine, room_id, body) if room_id is not None else None

    async def receipts(
        self,
        entity: EntityId,
        room_id: RoomId,
        ref_id: RefId,
        wait_for: Receipt | None = None,
        wait_seconds: float = 0.0,
    ) -> MessageReceipts:
        """Return what became of a message that one of ours sent.

        Args:
            entity: its author, one of ours.
            room_id: the room.
            ref_id: the message.
            wait_for: wait until all recipients are so far, or one of them can't be reached.
            wait_seconds: for at most so long, and ``MAX_WAIT_SECONDS``.

        Raises:
            SubletError: ``NOT_FOUND``: it has sent no such message.
        """
        until = anyio.current_time() + min(wait_seconds, MAX_WAIT_SECONDS)
        order = list(Receipt)
        read = partial(
            receipts_of, entity=entity, room_id=room_id, ref_id=ref_id, patience_seconds=self._patience_seconds
        )
        while True:
            news = self._news
            found = await self._call(read)
            left = until - anyio.current_time()
            enough = wait_for is None or order.index(found.receipt) >= order.index(wait_for)
            if enough or found.receipt is Receipt.UNDELIVERABLE or left <= 0:
                return found
            with anyio.move_on_after(left):
                await news.wait()

    async def steers(self, entity: EntityId, ref: FieldsView) -> bool:
        """Tell whether a message may steer one of ours: it is for this process, or names none.

        Args:
            entity: one of ours.
            ref: the message, as ``timeline.get_ref`` returns it.
        """
        found = control_of(ref)
        return found is None or await self._call(
            lambda engine: found[0] == entity and found[1] == engine.epochs.own.hex()
        )

    def _tell(self) -> None:
        news, self._news = self._news, anyio.Event()
        news.set()


def delivery_room(key: str) -> RoomId | None:
    """Return the room of a key where recipients acknowledge; None for another key."""
    try:
        place = parse_doc_id(key)
    except Refused:
        return None
    return place.room_id if place.kind == "delivery" else None

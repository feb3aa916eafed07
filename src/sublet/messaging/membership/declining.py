"""The no to an invitation: that ours leave the room, as one signed update of its config, made without taking it up."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from sublet.messaging.declaring.operating import OperationParts
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.membership.invitations import InvitationParts
from sublet.messaging.ports.outbox import Outbox
from sublet.messaging.rooms.standing import DECLINED_REASON
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, encode_bundle
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id


class DecliningParts(InvitationParts, Protocol):
    """The engine in memory in which the no is written."""

    @property
    def operating(self) -> OperationParts: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def registry(self) -> Registry: ...

    def commit(self) -> None:
        """Let what was written be as if it were durable."""


def no_to(
    make_trial: Callable[[], DecliningParts], room_id: RoomId, config: Bundle, whom: Collection[EntityId]
) -> bytes | None:
    """Return the no to an invitation, as it is told to a member; None where none of ours is a member; takes a while.

    Args:
        make_trial: makes an engine in memory whose clients are nobody's: a room that is taken up later is written by
            others, so that nothing is written twice under the same clocks.
        room_id: the room.
        config: its config, as it was offered.
        whom: those of ours who decline.
    """
    trial = make_trial()
    try:
        trial.here.ids.add(room_id)
        trial.intake.take_bundle(None, config)
        trial.commit()
        trial.outbox.take()
        left = [entity for entity in whom if trial.here.is_member(entity, room_id)]
        for entity in left:
            arguments = {"room_id": room_id, "reason": DECLINED_REASON}
            run_operation(trial.registry.operations, trial.operating, entity, "room.leave", arguments)
        trial.commit()
        name = doc_id("config", room_id=room_id)
        envelopes = [item.payload for item in trial.outbox.take() if item.key.startswith(name)]
        records = [trial.keyring.local[entity].record.encode() for entity in left]
        if not envelopes:
            return None
        return encode_bundle(
            [*((RecordKind.IDENTITY, raw) for raw in records), *((RecordKind.ENVELOPE, raw) for raw in envelopes)]
        )
    finally:
        trial.store.close()

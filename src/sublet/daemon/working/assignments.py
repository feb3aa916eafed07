"""The records of assignments that are under way, in memory and in the journal (DESIGN 4.1)."""

from __future__ import annotations

from collections import Counter
from typing import Final

import structlog

from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import AssignmentRecord
from sublet.daemon.storage.resource_log import NOTHING, ResourceChange
from sublet.daemon.times import rfc3339
from sublet.protocol.events import EventKind

MAX_ENDED_BYTES: Final = 64 << 20
"""Of what is over of one peer: each prompt is as long as it likes, and its INVITE costs it nothing."""
LOOK_AGAIN_BYTES: Final = 8 << 20
"""How much of a peer may come to its end before it is counted what is kept of it."""

log = structlog.get_logger(__name__)


class Assignments:
    """Knows every assignment by its delegation's id; ``under_way`` are those that are not over yet."""

    def __init__(self, journal: Journal) -> None:
        self.under_way: dict[str, AssignmentRecord] = {}
        self._journal = journal
        self._ended: Counter[str] = Counter()
        """Bytes of prompts that came to their end since it was counted what is kept of each peer."""

    async def find(self, delegation_id: str) -> AssignmentRecord | None:
        """Return the record of that delegation, also where it is over."""
        return self.under_way.get(delegation_id) or await self._journal.load_assignment(delegation_id)

    def of_peer(self, fingerprint: str) -> list[str]:
        """Return the ids of what is under way for the peer with that key."""
        return [record.id for record in self.under_way.values() if record.peer_fingerprint == fingerprint]

    async def begin(self, record: AssignmentRecord) -> None:
        """Journal a new assignment, which is under way from then on."""
        await self._journal.save_assignment(record, EventKind.ASSIGNMENT_STATE, {"state": str(record.state)})
        self.under_way[record.id] = record

    async def change(
        self, record: AssignmentRecord, held: ResourceChange = NOTHING, *, transition: bool, **changes: object
    ) -> AssignmentRecord:
        """Journal what has become of an assignment, with what is ``held``, and return the record.

        It is told as an event where it is a ``transition``.
        """
        changed = record.model_copy(update={**changes, "updated_at": rfc3339()})
        if transition:
            await self._journal.save_assignment(
                changed, EventKind.ASSIGNMENT_STATE, {"state": str(changed.state)}, held
            )
        else:
            await self._journal.save_assignment(changed, held=held)
        self.under_way[record.id] = changed
        return changed

    async def forget_oldest(self, ended: AssignmentRecord) -> None:
        """Count what is over and, where too much of its peer is kept, forget what ended first.

        Raises:
            SubletError: ``UNAVAILABLE`` where the disk fails.
        """
        self._ended[ended.peer] += len(ended.invite.task.prompt.encode())
        if self._ended[ended.peer] >= LOOK_AGAIN_BYTES:
            del self._ended[ended.peer]
            if gone := await self._journal.forgettable.forget_oldest_of(ended.peer, MAX_ENDED_BYTES):
                log.info("old work for a peer is forgotten, since much is kept", peer=ended.peer, assignments=gone)

    async def is_used(self, delegation_id: str) -> bool:
        """Tell whether we know a delegation of our own by that id: all that is journalled of it goes by it."""
        return await self._journal.load_delegation(delegation_id) is not None

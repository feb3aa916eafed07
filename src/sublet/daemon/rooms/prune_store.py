"""Rooms of delegations that are over, for ``sublet prune`` and retention: a daemon takes part in only so many."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import structlog

from sublet.daemon.rooms.entities import DAEMON, daemon_of
from sublet.daemon.rooms.lent_rooms import CLOSED_LEVEL
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.storage.prune_stores import MAX_CANDIDATES, Candidate
from sublet.messaging.calls import message_calls
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId, created_ms
from sublet.protocol.patterns import Pattern
from sublet.protocol.text import clean_line
from sublet.protocol.times import unix_seconds

if TYPE_CHECKING:
    from sublet.messaging.engine.engine import Engine
    from sublet.messaging.service import MessagingService

MAX_SHOWN_CHARS: Final = 80
MAX_KEPT: Final = 1_024
"""Rooms of our own delegations that are over; of more, the oldest are forgotten whatever their age."""
MAX_KEPT_OF_DELEGATOR: Final = 256
"""Those of one delegator, which may bring us into no more than ``invitations.MAX_ROOMS_OF_INVITER`` rooms."""
LOOK_SECONDS: Final = 300.0

log = structlog.get_logger(__name__)
_NAME: Final = Pattern(r"Delegation (dlg_[0-9a-f]{32}):")


@dataclass(frozen=True, slots=True)
class _Closed:
    room_id: RoomId
    name: str
    creator: EntityId


class LeaseRooms:
    """Implements ``PruneStore``. A room is over once the delegator's daemon has closed it.

    Args:
        messaging: runs the rooms; where it does not run, nothing of them is looked at.
        node_id: ours.
        in_use: returns the rooms that somebody here attends to just now.
        clock: Unix seconds.
    """

    name = "rooms"

    def __init__(
        self,
        messaging: Messaging,
        node_id: str,
        in_use: Callable[[], Iterable[RoomId]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._messaging = messaging
        self._me = daemon_of(node_id)
        self._in_use = in_use
        self._clock = clock

    async def serve(self) -> None:
        """Keep only so many, until cancelled, so that there is always space for the next one."""
        while True:
            await anyio.sleep(LOOK_SECONDS)
            try:
                if gone := await self.trim():
                    log.info("the oldest rooms of delegations that are over were forgotten", rooms=gone)
            except SubletError as error:
                log.warning("old rooms are not forgotten for now", reason=str(error))

    async def trim(self) -> int:
        """Forget the oldest beyond ``MAX_KEPT`` and ``MAX_KEPT_OF_DELEGATOR``; return how many."""
        if not self._messaging.running:
            return 0
        service = await self._messaging.use()
        by_delegator: dict[EntityId, list[RoomId]] = {}
        for one in await self._over(service):
            by_delegator.setdefault(one.creator, []).append(one.room_id)
        gone = [
            room_id
            for delegator, rooms in by_delegator.items()
            for room_id in sorted(rooms)[: -(MAX_KEPT if delegator == self._me else MAX_KEPT_OF_DELEGATOR)]
        ]
        await service.forgetting.rooms(gone)
        return len(gone)

    async def candidates(self) -> list[Candidate]:
        """``PruneStore.candidates``."""
        if not self._messaging.running:
            return []
        service = await self._messaging.use()
        found = await self._over(service)
        sizes = await service.forgetting.sizes([one.room_id for one in found])
        return [
            Candidate(
                one.room_id,
                await self._last_said(service, one.room_id),
                sizes[one.room_id],
                serves=self._delegation(one),
                shown=clean_line(one.name, MAX_SHOWN_CHARS),
            )
            for one in found
        ]

    async def remove(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        """``PruneStore.remove``."""
        service = await self._messaging.use()
        over = {one.room_id for one in await self._over(service)}
        gone = [candidate for candidate in chosen if candidate.id in over]
        await service.forgetting.rooms([candidate.id for candidate in gone])
        return gone

    async def _over(self, service: MessagingService) -> list[_Closed]:
        found = await service.on_engine(partial(_closed, me=self._me))
        used = frozenset(self._in_use())
        return [one for one in found if one.room_id not in used][:MAX_CANDIDATES]

    async def _last_said(self, service: MessagingService, room_id: RoomId) -> float:
        """Return since when nothing is said in a room; its members say when that was, so never later than now."""
        page = await service.call(self._me, message_calls.list_timeline, room_id=room_id, limit=1, peek=True)
        try:
            last = unix_seconds(page["refs"][-1]["created_at"])
        except (IndexError, ValueError, OverflowError):
            last = created_ms(room_id) / 1000
        return min(last, self._clock())

    def _delegation(self, room: _Closed) -> frozenset[str]:
        """Return the delegation whose room it is, where it is ours: the room goes with it."""
        match = _NAME.match(room.name) if room.creator == self._me else None
        return frozenset([match[1]] if match is not None else [])


def _closed(engine: Engine, me: EntityId) -> list[_Closed]:
    """Return the rooms that a delegator's daemon has opened and closed, and that our daemon is a member of."""
    return [
        _Closed(state.room_id, state.name, state.creator)
        for state in engine.here.of(me)
        if state.creator is not None
        and state.creator.startswith(f"@{DAEMON}:")
        and state.level("events_default").value == CLOSED_LEVEL
    ]

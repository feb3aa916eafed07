"""Asks for what may have been missed: after each change of a link, and from time to time; on the event loop."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Collection, Mapping
from typing import Final

import anyio

from sublet.messaging.attending.attending import Attending
from sublet.messaging.attending.members import documents_of_members
from sublet.messaging.attending.presence import Tokens
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.membership.joining import Joining
from sublet.messaging.running.hand_over import tried
from sublet.messaging.syncing.history import History
from sublet.messaging.syncing.reconciler import sum_up
from sublet.messaging.syncing.sync import Sync
from sublet.messaging.syncing.wanted import WantedDocument, WantedRoom
from sublet.protocol.ezagent.ids import EntityId, RoomId

PERIOD_SECONDS: Final = 30.0
"""How often all that was droppable, or was lost where no gap shows it, is asked for."""
PERIODS_FOR_QUIET: Final = 20
"""After how many of those that is asked for in a room where nothing happens."""
PERIODS_FOR_MEMBERS: Final = 10
"""After how many of those what members keep for all their rooms is asked for."""
GATHER_SECONDS: Final = 0.1
"""How long changes of links are gathered: whoever starts has links to all its peers within a moment."""
ONCE_MORE_SECONDS: Final = 2.0
"""How long after a change of a link who has answered nothing is asked once more.

A link is told of before it is known what the other side serves there, so the first question may reach nobody.
"""


class CatchingUp:
    """Decides when which room is asked for.

    Args:
        call: runs something with the engine.
        attending: attends to rooms, which asks for what is missing of them.
        joining: asks which other rooms ours are members of.
        tokens: takes in who is there.
        sync: asks for documents.
        history: told that somebody new may know older months.
        own: returns our own entities.
        met: returns the peers to which there is a link, each with a number that is another one once it came again.
    """

    def __init__(
        self,
        call: CallEngine,
        attending: Attending,
        joining: Joining,
        tokens: Tokens,
        sync: Sync,
        history: History,
        own: Callable[[], list[EntityId]],
        met: Callable[[], Mapping[str, int]],
    ) -> None:
        self._call = call
        self._attending = attending
        self._joining = joining
        self._tokens = tokens
        self._sync = sync
        self._history = history
        self._own = own
        self._read_met = met
        self._met: Mapping[str, int] | None = None
        """Who was there when everything was asked for last; None before that."""
        self._lately: frozenset[str] = frozenset()
        """Who has come since somebody was asked once more."""
        self._gathers = False
        self._month = ""
        self._asks_once_more = False

    async def begin(self) -> None:
        """Note the month in which the daemon has started."""
        self._month = await self._call(lambda engine: engine.shards.current_month())

    async def run(self) -> None:
        """Look again from time to time, until cancelled; first sum up what an older version has written."""
        if await sum_up(self._call):
            await tried(self.everything)
        for turn in itertools.count(1):
            await anyio.sleep(PERIOD_SECONDS)
            await tried(self.look_again, turn)
            if turn % PERIODS_FOR_MEMBERS == 0:
                await tried(self._ask_for_members)

    async def look_again(self, turn: int) -> None:
        """Catch up where something has happened lately; a quiet room has its turn now and then, or in a new month.

        Whoever writes in it asks too, and shows thereby that there is more than here.
        """
        month = await self._call(lambda engine: engine.shards.current_month())
        begun, self._month = month != self._month, month

        def is_due(room_id: RoomId) -> bool:
            own_turn = zlib.crc32(room_id.encode()) % PERIODS_FOR_QUIET
            return begun or not self._attending.is_quiet(room_id) or turn % PERIODS_FOR_QUIET == own_turn

        await self.everything(is_due)

    async def link_changed(self) -> None:
        """Ask again for everything where somebody has come, who may know more; once for several changes.

        Where we are a member, and what members keep for all their rooms, is asked of those who came: the others were
        asked before, and publish what has changed since.
        """
        if self._gathers:
            return
        self._gathers = True
        try:
            await anyio.sleep(GATHER_SECONDS if self._met is not None else 0)
        finally:
            self._gathers = False
        before, self._met = self._met, self._read_met()
        came = frozenset(peer for peer, number in self._met.items() if before is None or before.get(peer) != number)
        if before is not None and not came:
            await self._tokens.take()
            return
        self._lately |= came
        self._history.link_changed()
        await self.everything(of=came)
        await self._ask_for_members(came)
        await self._once_more()
        await self._joining.tell_again()

    async def _once_more(self) -> None:
        """Ask again for rooms of which no member has answered, and who came for what else they are asked for.

        Once for several changes.
        """
        if self._asks_once_more:
            return
        self._asks_once_more = True
        try:
            await anyio.sleep(ONCE_MORE_SECONDS)
        finally:
            self._asks_once_more = False
        lately, self._lately = self._lately, frozenset()
        unanswered = self._sync.take_unanswered()
        for room_id in await self._call(lambda engine: sorted(engine.here.ids & unanswered)):
            self._sync.want(WantedRoom(room_id))
        if not lately:
            return
        await self._ask_for_members(lately)
        for entity in self._own():
            await self._joining.ask(entity, lately)

    async def everything(
        self, is_due: Callable[[RoomId], bool] = lambda _: True, of: Collection[str] | None = None
    ) -> None:
        """Ask for all that may have been missed, hear a month that has begun, and find where we are a member now.

        The rooms that were made last come first.

        Args:
            is_due: tells which of them are looked at.
            of: node ids of the peers that are asked where we are a member; None for all.
        """
        await self._tokens.take()
        rooms = await self._call(lambda engine: sorted(engine.here.ids, reverse=True))
        for room_id in filter(is_due, rooms):
            await self._attending.room(room_id)
        for entity in self._own():
            await self._joining.ask(entity, of)

    async def _ask_for_members(self, of: frozenset[str] | None = None) -> None:
        """Ask for what members keep for all their rooms: changes are published, and this heals what was lost."""
        for name in await self._call(documents_of_members):
            self._sync.want(WantedDocument(name, of))

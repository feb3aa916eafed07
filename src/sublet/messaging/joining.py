"""Rooms into which others bring our entities: told as it happens, and asked for by who was away; on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from sublet.messaging.attending import Declaring
from sublet.messaging.engine.backend import Answer
from sublet.messaging.engine.engine import Engine
from sublet.messaging.hand_over import HandOver
from sublet.messaging.invitations import follow, rooms_in, rooms_known
from sublet.messaging.sync import Sync
from sublet.protocol.ezagent.bundle import Bundle, decode_bundle, encode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId

MAX_INBOX_PARTS: Final = 64
"""Answers, one after the other, in which an entity that was away learns of its rooms."""
ResultT = TypeVar("ResultT")
Call = Callable[[Callable[[Engine], ResultT]], Awaitable[ResultT]]


class Joining:
    """Takes up rooms that ours were invited to.

    Args:
        call: runs something with the engine.
        declare: where answers are given.
        sync: asks for rooms.
        accept: tells whether an entity may bring ours into a room.
        trial: makes an engine in memory, where a config is read before anything of it is kept.
        attend: attends to a room that was taken up.
        hand_over: takes invitations from the network's threads.
    """

    def __init__(
        self,
        call: Call[object],
        declare: Declaring,
        sync: Sync,
        accept: Callable[[EntityId], bool],
        trial: Callable[[], Engine],
        attend: Callable[[RoomId], Awaitable[None]],
        hand_over: HandOver,
    ) -> None:
        self._run_call = call
        self._declare = declare
        self._sync = sync
        self._accept = accept
        self._trial = trial
        self._attend = attend
        self._hand_over = hand_over

    def invited(self, query: Answer) -> None:
        """Take an invitation; any thread may call."""
        self._hand_over.soon(self._read, query)

    async def ask(self, entity: EntityId) -> None:
        """Ask which other rooms one of ours is a member of, part by part; each room is told of once."""
        told = await self._call(partial(rooms_known, entity=entity))
        for _ in range(MAX_INBOX_PARTS):
            before, more = len(told), False
            for bundle in await self._sync.inbox(entity, told):
                told |= await self._take(bundle)
                more |= bundle.more
            if not more or len(told) == before:
                return

    async def _read(self, query: Answer) -> None:
        try:
            await self._take(decode_bundle(query.payload))
        except Refused:
            query.drop()
        else:
            await self._declare(query.reply, encode_bundle(()))

    async def _take(self, bundle: Bundle) -> set[RoomId]:
        """Take up the rooms that a bundle of configs shows one of ours to be a member of; return all that it holds."""
        rooms = rooms_in(bundle)
        for room_id, offered in rooms.items():
            may_invite = {signer for signer in offered.signers if self._accept(signer)}
            taken = partial(follow, room_id=room_id, bundle=offered.config, may_invite=may_invite, trial=self._trial)
            if await self._call(taken):
                await self._attend(room_id)
        return set(rooms)

    async def _call(self, run: Callable[[Engine], ResultT]) -> ResultT:
        return await self._run_call(run)  # type: ignore[return-value]  # one callable for every result

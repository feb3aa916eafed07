"""Rooms into which others bring our entities: told as it happens, and asked for by who was away; on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from sublet.messaging.attending import Declaring
from sublet.messaging.byte_queue import ByteQueue
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.engine.engine import Engine
from sublet.messaging.engine.network import Answer
from sublet.messaging.hand_over import HandOver
from sublet.messaging.invitations import follow, heard, inviter, is_new, parts_of, rooms_in, rooms_known
from sublet.messaging.sync import Sync
from sublet.protocol.ezagent.bundle import Bundle, decode_bundle, encode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId

MAX_INVITATIONS: Final = 16
MAX_INVITATIONS_BYTES: Final = 16 << 20
"""Of invitations that wait to be read; one has at most 8 MiB."""
MAX_INBOX_PARTS: Final = 64
"""Answers, one after the other, in which an entity that was away learns of its rooms."""


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
        call: CallEngine,
        declare: Declaring,
        sync: Sync,
        accept: Callable[[EntityId], bool],
        trial: Callable[[], Engine],
        attend: Callable[[RoomId], Awaitable[None]],
        hand_over: HandOver,
    ) -> None:
        self._call = call
        self._declare = declare
        self._sync = sync
        self._accept = accept
        self._trial = trial
        self._attend = attend
        self._hand_over = hand_over
        self._trying = anyio.CapacityLimiter(1)
        self._waiting: ByteQueue[Answer] = ByteQueue(MAX_INVITATIONS, MAX_INVITATIONS_BYTES)
        self._reading = False

    def invited(self, query: Answer) -> None:
        """Take an invitation; any thread may call."""
        if not self._waiting.put(query, len(query.payload)):
            query.drop()  # whoever invites asks again
        else:
            self._hand_over.soon(self._read)

    async def ask(self, entity: EntityId) -> None:
        """Ask which other rooms one of ours is a member of, part by part; each room is told of once."""
        await self._read()
        told = await self._call(partial(rooms_known, entity=entity))
        for _ in range(MAX_INBOX_PARTS):
            before, more = len(told), False
            for bundle in await self._sync.inbox(entity, told):
                told |= await self._take(bundle)
                more |= bundle.more
            if not more or len(told) == before:
                return

    async def _read(self) -> None:
        """Read the invitations that wait; also from time to time, for what found no room to be handed over."""
        if self._reading:  # one at a time, or each of a flood would be held by a task of its own and count nowhere
            return
        self._reading = True
        try:
            while (query := self._waiting.take()) is not None:
                try:
                    await self._take(decode_bundle(query.payload))
                except Refused:
                    query.drop()
                else:
                    await self._declare(query.reply, encode_bundle(()))
        finally:
            self._reading = False

    async def _take(self, bundle: Bundle) -> set[RoomId]:
        """Take up the rooms that a bundle of configs shows one of ours to be a member of; return all that it holds."""
        rooms = rooms_in(bundle)
        for room_id, offered in rooms.items():
            config, may_invite = offered.config, {signer for signer in offered.signers if self._accept(signer)}
            if bool(may_invite) and await self._call(partial(is_new, room_id=room_id)):
                # On a thread of its own, since whoever sends a config makes it as long as they like.
                tried = partial(inviter, self._trial, room_id, config, may_invite)
                by = await anyio.to_thread.run_sync(tried, limiter=self._trying)
                if await self._call(partial(follow, room_id=room_id, bundle=config, by=by)):
                    await self._attend(room_id)
                    continue
            for part in parts_of(config):
                await self._call(partial(heard, room_id=room_id, bundle=part))
        return set(rooms)

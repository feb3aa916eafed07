"""Rooms into which others bring our entities: told as it happens, and asked for by who was away; on the event loop."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from sublet.messaging.attending.attending import Declaring
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.membership.invitations import (
    InvitationParts,
    follow,
    heard,
    inviter,
    is_new,
    rooms_in,
    rooms_known,
)
from sublet.messaging.parts import parts_of
from sublet.messaging.ports.network import PeerQuery
from sublet.messaging.running.fair_queue import ITEM_BYTES, Bounds, FairQueue, claimed_sender
from sublet.messaging.running.hand_over import HandOver
from sublet.messaging.syncing.sync import Sync
from sublet.protocol.ezagent.bundle import Bundle, decode_bundle, encode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId

MAX_INVITATIONS: Final = 16
"""That wait to be read."""
MAX_INVITATIONS_BYTES: Final = 8 << 20
MAX_INVITATIONS_OF_INVITER: Final = 16
MAX_BYTES_OF_INVITER: Final = 6 << 20
"""As much as one room's config with its signers; where others come, whoever has the most waiting makes room."""
MAX_ROOMS_OF_INVITATION: Final = 16
"""An invitation tells of one room; of more the rest is not looked at."""
MAX_ROOMS_OF_ANSWER: Final = 1_024
"""Rooms that one answer tells of; those beyond are told of in the next one."""
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
        trial: Callable[[], InvitationParts],
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
        self._lock = threading.Lock()
        bounds = Bounds(MAX_INVITATIONS, MAX_INVITATIONS_BYTES, MAX_INVITATIONS_OF_INVITER, MAX_BYTES_OF_INVITER)
        self._waiting: FairQueue[PeerQuery] = FairQueue(bounds)

    def invited(self, query: PeerQuery) -> None:
        """Take an invitation; any thread may call."""
        payload = query.payload
        with self._lock:
            was_idle = not self._waiting
            left_out = self._waiting.add(claimed_sender(payload), query, len(payload) + ITEM_BYTES)
        for other in left_out:
            other.drop()  # whoever invites asks again
        if was_idle:
            self._hand_over.soon(self._read)

    async def ask(self, entity: EntityId) -> None:
        """Ask which other rooms one of ours is a member of, part by part; each room is told of once."""
        await self._read()
        told = await self._call(partial(rooms_known, entity=entity))
        for _ in range(MAX_INBOX_PARTS):
            before, more = len(told), False
            for bundle in await self._sync.inbox(entity, told):
                told |= await self._take(bundle, MAX_ROOMS_OF_ANSWER)
                more |= bundle.more
            if not more or len(told) == before:
                return

    async def _read(self) -> None:
        """Read the invitations that wait; also from time to time, for what found no room to be handed over."""
        while True:
            with self._lock:
                query = self._waiting.take()
            if query is None:
                return
            try:
                # On a thread, since an invitation may hold tens of thousands of records.
                bundle = await anyio.to_thread.run_sync(decode_bundle, query.payload, limiter=self._trying)
                await self._take(bundle, MAX_ROOMS_OF_INVITATION)
            except Refused:
                query.drop()
            else:
                await self._declare(query.reply, encode_bundle(()))

    async def _take(self, bundle: Bundle, most: int) -> set[RoomId]:
        """Take up the rooms that a bundle of configs shows one of ours to be a member of; return all that it holds.

        Args:
            bundle: the configs, unverified.
            most: how many rooms are looked at.
        """
        rooms = await anyio.to_thread.run_sync(rooms_in, bundle, most, limiter=self._trying)
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

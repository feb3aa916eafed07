"""Rooms into which others bring our entities: told as it happens, and asked for by who was away; on the event loop.

Rules: a room is taken up where its rules say so, or a person has said yes. Any other waits (``consent.py``). What a
daemon tells of is read for as long as there is room for its invitations, and only so much of it at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
from nacl.signing import SigningKey

from sublet.messaging.attending.attending import Declaring
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.membership import consent
from sublet.messaging.membership.consent import Consent, ConsentRules, OfferRead, TellsNo
from sublet.messaging.membership.invitations import (
    InvitationParts,
    Offered,
    follow,
    heard,
    homes_of,
    is_new,
    read_offer,
    rooms_in,
    rooms_known,
)
from sublet.messaging.membership.offer_limits import OfferLimits
from sublet.messaging.membership.other_devices import with_several
from sublet.messaging.parts import parts_of
from sublet.messaging.ports.invitation_store import Answer, Invitation
from sublet.messaging.ports.network import PeerQuery
from sublet.messaging.running.fair_queue import ITEM_BYTES, Bounds, FairQueue, claimed_sender
from sublet.messaging.running.hand_over import HandOver
from sublet.messaging.syncing.sync import Sync
from sublet.protocol.ezagent.bundle import Bundle, decode_bundle, encode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.inbox import open_offer

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
ASK_DEVICES_SECONDS: Final = 0.5
"""How often an invitation has the other devices of ours asked."""
MAX_INBOX_PARTS: Final = 64
"""Answers, one after the other, in which an entity that was away learns of its rooms."""


class Joining:
    """Takes up rooms that ours were invited to, or has them wait.

    Args:
        call: runs something with the engine.
        declare: where answers are given.
        sync: asks for rooms.
        accept: tells whether the entities of a daemon, by its node id, may invite ours at all.
        rules: decides what becomes of invitations of those who may.
        trial: makes an engine in memory, where a config is read before anything of it is kept.
        attend: attends to a room that was taken up.
        noes: tells those who invite that ours have declined.
        hand_over: takes invitations from the network's threads.
    """

    def __init__(
        self,
        call: CallEngine,
        declare: Declaring,
        sync: Sync,
        accept: Callable[[str], bool],
        rules: ConsentRules,
        trial: Callable[[], InvitationParts],
        attend: Callable[[RoomId], Awaitable[None]],
        noes: TellsNo,
        hand_over: HandOver,
    ) -> None:
        self._call = call
        self._declare = declare
        self._sync = sync
        self._accept = accept
        self._rules = rules
        self._trial = trial
        self._attend = attend
        self._noes = noes
        self._hand_over = hand_over
        self.limits = OfferLimits()
        self._trying = anyio.CapacityLimiter(1)
        self._turn = anyio.Lock()
        self._lock = threading.Lock()
        self._asked_devices = -ASK_DEVICES_SECONDS
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

    async def ask(self, entity: EntityId, of: Collection[str] | None = None) -> None:
        """Ask these peers, or all, which other rooms one of ours is a member of, part by part; each is told of once."""
        await self._read()
        await self._pull(entity, of)

    async def _pull(self, entity: EntityId, of: Collection[str] | None = None) -> None:
        told = await self._call(partial(rooms_known, entity=entity)) | self.limits.left_out()
        for _ in range(MAX_INBOX_PARTS):
            before, more = len(told), False
            homes = await self._call(lambda engine: engine.keyring.homes(entity))
            for answer in await self._sync.inbox(entity, told, of):
                agreed = answer.peer in homes  # another device of the same entity, which is in these rooms
                rooms, looked_at = await self._take(answer.said, MAX_ROOMS_OF_ANSWER, agreed=agreed)
                told |= rooms
                more |= answer.said.more and looked_at  # nobody is asked on who tells of what nobody here looks at
            if not more or len(told) == before:
                return

    async def tell_again(self) -> None:
        """Tell of what ours have declined while nobody could be reached."""
        await self._noes.tell_again()

    async def take_up(self, invitation: Invitation, config: Bundle) -> bool:
        """Take up a room that somebody here has accepted; return whether that could be done."""
        return await self._follow(invitation.room_id, config, invitation.by, is_asked=True)

    async def _read(self) -> None:
        """Read the invitations that wait; also from time to time, for what found no room to be handed over."""
        while True:
            with self._lock:
                query = self._waiting.take()
            if query is None:
                return
            try:
                # On a thread, since an invitation may hold tens of thousands of records.
                keys = await self._call(lambda engine: [local.key for local in engine.keyring.local.values()])
                opened = partial(_opened, keys, query.payload)
                bundle = await anyio.to_thread.run_sync(opened, limiter=self._trying)
                await self._ask_devices()
                await self._take(bundle, MAX_ROOMS_OF_INVITATION)
            except Refused:
                query.drop()
            else:
                await self._declare(query.reply, encode_bundle(()))

    async def _ask_devices(self) -> None:
        """Ask the other devices of ours first, once in ``ASK_DEVICES_SECONDS``: what they are in needs no other yes."""
        now = anyio.current_time()
        if now - self._asked_devices >= ASK_DEVICES_SECONDS:
            self._asked_devices = now
            for entity in await self._call(with_several):
                await self._pull(entity)

    async def _take(self, bundle: Bundle, most: int, *, agreed: bool = False) -> tuple[set[RoomId], bool]:
        """Take what a bundle of configs tells of; return all rooms that it holds, and whether any was looked at.

        Args:
            bundle: the configs, unverified.
            most: how many rooms are looked at.
            agreed: whether somebody has said yes to these rooms, at another device of one of ours.
        """
        rooms = await anyio.to_thread.run_sync(rooms_in, bundle, most, limiter=self._trying)
        looked_at = False
        for room_id, offered in rooms.items():
            if await self._call(partial(is_new, room_id=room_id)):
                async with self._turn:  # or a room that comes by two ways would be read twice
                    looked_at |= await self._offered(room_id, offered, agreed=agreed)
                continue
            looked_at = True
            for part in parts_of(offered.config):
                await self._call(partial(heard, room_id=room_id, bundle=part))
        return set(rooms), looked_at

    async def _offered(self, room_id: RoomId, offered: Offered, *, agreed: bool) -> bool:
        """Take up a room, have it wait, or leave it out; return whether it was looked at."""
        homes = await self._call(partial(homes_of, offered=offered))
        if agreed:
            tried = partial(read_offer, self._trial, room_id, offered.config, homes)
            read = await anyio.to_thread.run_sync(tried, limiter=self._trying)
            return read.by is not None and await self._follow(room_id, offered.config, read.by, is_asked=True)
        may_invite = {signer: home for signer, home in homes.items() if self._accept(home)}
        found = await self._call(partial(consent.find, room_id=room_id))
        if found is not None and found.answer is Answer.DECLINED:
            await self._noes.refuse(found, offered.config)
            return True
        if not may_invite:
            return False
        if found is None and not await self._may_look(room_id, may_invite):
            return False
        if found is not None and found.answer is Answer.PENDING:
            if found.kept == encode_bundle(offered.config.records):
                return True
            if not any(self.limits.may_read_again(home) for home in set(may_invite.values())):
                return False
        # On a thread of its own, since whoever sends a config makes it as long as they like.
        tried = partial(read_offer, self._trial, room_id, offered.config, may_invite)
        read = await anyio.to_thread.run_sync(tried, limiter=self._trying)
        found = await self._call(partial(consent.find, room_id=room_id))  # which may have been answered meanwhile
        if found is not None and found.whom and read.taken_out:
            await self._call(lambda engine: engine.store.invitations.drop(room_id))
            self.limits.has_room(found.home)
        elif read.by is not None:
            await self._consider(room_id, offered.config, read, found)
        return True

    async def _consider(self, room_id: RoomId, config: Bundle, read: OfferRead, found: Invitation | None) -> None:
        """Do with a room that ours are members of what its rules, or somebody here, say."""
        assert read.by is not None, "nobody has invited"
        if found is not None and consent.is_agreed(found, read):
            await self._follow(room_id, config, read.by, is_asked=bool(found.whom))
            return
        if found is not None and found.answer is Answer.DECLINED:
            return
        decided = await self._rules.decide(read.home, read.whom)
        if decided is Consent.ACCEPT:
            await self._follow(room_id, config, read.by)
        elif decided is Consent.ASK:
            raw = encode_bundle(config.records)
            if not await self._call(partial(consent.keep, room_id=room_id, read=read, config=raw, before=found)):
                self.limits.leave_out(room_id, read.home)

    async def _follow(self, room_id: RoomId, config: Bundle, by: EntityId, *, is_asked: bool = False) -> bool:
        if not await self._call(partial(follow, room_id=room_id, bundle=config, by=by, is_asked=is_asked)):
            return False
        await self._attend(room_id)
        return True

    async def _may_look(self, room_id: RoomId, may_invite: Mapping[EntityId, str]) -> bool:
        """Tell whether a room that is new is read: there is room for it, or it would be taken up by itself.

        Args:
            room_id: the room.
            may_invite: those who say that they have signed its config, with their homes.
        """
        homes = set(may_invite.values())
        if any(self._rules.foresee(home) is Consent.ACCEPT for home in homes):
            return True
        asks = {home for home in homes if self._rules.foresee(home) is Consent.ASK}
        for by, home in may_invite.items():
            if home not in asks or await self._call(partial(consent.is_full, by=by, home=home)):
                continue
            if self.limits.may_read(home):
                return True
            asks.discard(home)
        for home in homes:
            self.limits.leave_out(room_id, home)
        return False


def _opened(keys: list[SigningKey], payload: bytes) -> Bundle:
    """Return an invitation, opened where it is sealed for one of ours.

    Raises:
        Refused: it is malformed, or for somebody else.
    """
    return decode_bundle(open_offer(keys, payload))

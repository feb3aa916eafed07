"""What people say to invitations: yes, which takes the room up, and no, which is told to those who are in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread

from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.membership import consent
from sublet.messaging.membership.declining import DecliningParts, no_to
from sublet.messaging.membership.joining import Joining
from sublet.messaging.ports.invitation_store import Answer, Invitation
from sublet.messaging.ports.store import Store
from sublet.messaging.rooms.here import RoomsHere
from sublet.messaging.syncing.sync import Sync
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id

MAX_TELLING: Final = 64
"""Noes that wait to be told at a time; what is beyond is told after the next change of a link."""
MAX_TOLD: Final = 4
"""Members that are told of a no, one after the other, until one of them has taken it."""
TELL_AGAIN_SECONDS: Final = 60.0
"""How long a no that was just told is not told once more."""


class Answering:
    """Answers invitations; on the event loop.

    Args:
        call: runs something with the engine.
        sync: reaches those who invite.
        trial: makes an engine in memory in which a no is written.
        soon: has something done on the event loop.
    """

    def __init__(
        self, call: CallEngine, sync: Sync, trial: Callable[[], DecliningParts], soon: Callable[..., None]
    ) -> None:
        self._call = call
        self._sync = sync
        self._trial = trial
        self._trying = anyio.CapacityLimiter(1)
        self._soon = soon
        self._turn = anyio.Lock()
        self._telling: set[RoomId] = set()
        self._told: dict[RoomId, float] = {}

    def begin(self, joining: Joining) -> None:
        """Take up rooms by this from now on."""
        self._joining = joining

    async def all(self) -> list[Invitation]:
        """Return the invitations of ours, the oldest first, with those that were answered lately."""
        return await self._call(_waiting)

    async def accept(self, room_id: RoomId) -> bool:
        """Take up a room; return whether it is here now, and not only once somebody who is in it can be reached.

        Raises:
            SubletError: ``NOT_FOUND``: ours are not invited there; ``CONFLICT``: there are too many rooms here.
        """
        found = await self._require(room_id)
        waits = found.answer is Answer.PENDING
        keeps = found.kept if waits else b""
        await self._call(partial(consent.answer, invitation=found, given=Answer.ACCEPTED, kept=keeps))
        self._joining.limits.has_room(found.home)
        if keeps:
            if await self._joining.take_up(found, decode_bundle(keeps)):
                return True
        else:
            for entity in found.whom:
                await self._joining.ask(entity)
        return await self._call(partial(_is_here, room_id=room_id))

    async def decline(self, room_id: RoomId) -> None:
        """Say no to an invitation. Where nobody can be told of it now, that is done later.

        Raises:
            SubletError: ``NOT_FOUND``: ours are not invited there.
        """
        found = await self._require(room_id)
        if found.answer is Answer.DECLINED:
            return
        keeps = found.kept if found.answer is Answer.PENDING else b""
        await self._call(partial(consent.answer, invitation=found, given=Answer.DECLINED, kept=b""))
        self._joining.limits.has_room(found.home)
        if keeps:
            await self.refuse(await self._require(room_id), decode_bundle(keeps))
        else:
            for entity in found.whom:
                await self._joining.ask(entity)

    async def refuse(self, declined: Invitation, config: Bundle) -> None:
        """Tell of a no soon, made from a room's config as it is offered; again only after a while.

        A config that holds the no already was told of by somebody who lets ours in again, which ours do not see
        before ``consent.ANSWERED_MS``.
        """
        now = anyio.current_time()
        if now - self._told.get(declined.room_id, -TELL_AGAIN_SECONDS) < TELL_AGAIN_SECONDS:
            return
        if len(self._told) >= consent.MAX_WAITING:
            self._told.clear()
        self._told[declined.room_id] = now
        no: bytes | None = declined.kept
        if not no or any(raw in config.of(RecordKind.ENVELOPE) for raw in decode_bundle(no).of(RecordKind.ENVELOPE)):
            made = partial(no_to, self._trial, declined.room_id, config, declined.whom)
            no = await anyio.to_thread.run_sync(made, limiter=self._trying)
        if no:
            await self._call(partial(consent.keep_no, room_id=declined.room_id, no=no))
            self._soon(self._tell, declined.room_id)

    async def tell_again(self) -> None:
        """Tell of what was declined while nobody could be reached."""
        for one in await self._call(lambda engine: engine.store.invitations.kept()):
            if one.answer is Answer.DECLINED and not one.is_told:
                self._soon(self._tell, one.room_id)

    def expect(self, room_id: RoomId, by: EntityId, home: str) -> None:
        """Take up a room that was agreed to, as soon as it is offered: one that ``by`` opens and brings ours into.

        Args:
            room_id: the room.
            by: who opens it.
            home: node id of the daemon of that one.
        """
        self._soon(self._expect, room_id, by, home)

    async def _expect(self, room_id: RoomId, by: EntityId, home: str) -> None:
        if await self._call(partial(_is_here, room_id=room_id)):
            return
        if await self._call(partial(consent.expect, room_id=room_id, by=by, home=home)):
            for entity in await self._call(lambda engine: list(engine.keyring.local)):
                await self._joining.ask(entity)

    async def _tell(self, room_id: RoomId) -> None:
        """Tell of a no; one after the other, since whoever invites may answer late or never."""
        if room_id in self._telling or len(self._telling) >= MAX_TELLING:
            return
        self._telling.add(room_id)
        try:
            async with self._turn:
                found = await self._call(partial(consent.find, room_id=room_id))
                if found is None or found.answer is not Answer.DECLINED or not found.kept:
                    return
                others = [one for one in found.members if one not in (found.by, *found.whom)]
                for entity in [found.by, *others][:MAX_TOLD]:
                    if await self._told_to(entity, found.kept):
                        await self._call(partial(consent.told, room_id=room_id, no=found.kept))
                        return
        finally:
            self._telling.discard(room_id)

    async def _told_to(self, entity: EntityId, no: bytes) -> bool:
        key = channel_key(doc_id("inbox", entity_id=entity), Channel.UPDATES)
        return bool(await self._sync.ask(key, no))

    async def _require(self, room_id: RoomId) -> Invitation:
        found = await self._call(partial(consent.find, room_id=room_id))
        if found is None:
            raise SubletError(
                LocalCode.NOT_FOUND, "no invitation to that room waits here", "See: sublet room invitations"
            )
        return found


class _Here(Protocol):
    @property
    def here(self) -> RoomsHere: ...

    @property
    def store(self) -> Store: ...


def _waiting(engine: _Here) -> list[Invitation]:
    return [one for one in engine.store.invitations.all() if one.whom and one.room_id not in engine.here.ids]


def _is_here(engine: _Here, room_id: RoomId) -> bool:
    return room_id in engine.here.ids

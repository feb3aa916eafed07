"""What is heard, served and announced on the network, as rooms and their members come and go; on the event loop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from sublet.messaging.attending.members import known, writers_of_drafts
from sublet.messaging.attending.presence import Company, Presences, Tokens, company
from sublet.messaging.attending.subscriptions import Subscriptions
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.ports.rows import EventRow
from sublet.messaging.running.hand_over import HandOver
from sublet.messaging.syncing.wanted import Bringing, Offer, Wanted, WantedDocument, WantedRoom, Withdrawal
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id

QUIET_SECONDS: Final = 120.0
"""After how long without an event a room is quiet."""
DECLARERS: Final = 4
"""Threads that declare on the network; more of them would take turns there."""


class Declaring:
    """Declares on the network, which takes a while and so is done on other threads."""

    def __init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(DECLARERS)

    async def __call__(self, declare: Callable[..., None], *arguments: object) -> None:
        """Declare something with these arguments."""
        await anyio.to_thread.run_sync(declare, *arguments, limiter=self._limiter)


class Attending:
    """Attends to rooms and to who is in them.

    Args:
        call: runs something with the engine.
        declare: where network declarations are made.
        registry: which documents members keep for all their rooms.
        subscriptions: what is heard and served.
        presences: who is announced.
        tokens: of those who are there; they are asked what they are about.
        want: asks for what is missing of a document, soon.
        hand_over: takes what follows from an event.
        came: told of a room that is attended to from now on.
    """

    def __init__(
        self,
        call: CallEngine,
        declare: Declaring,
        registry: Registry,
        subscriptions: Subscriptions,
        presences: Presences,
        tokens: Tokens,
        want: Callable[[Wanted], None],
        hand_over: HandOver,
        came: Callable[[RoomId], None],
    ) -> None:
        self._call = call
        self._declare = declare
        self._registry = registry
        self._subscriptions = subscriptions
        self._presences = presences
        self._tokens = tokens
        self._want = want
        self._hand_over = hand_over
        self._came = came
        self._last_event: dict[RoomId, float] = {}

    async def begin(self, own: Iterable[EntityId]) -> None:
        """Attend to our own entities and to whom they share rooms with."""
        ours = list(own)
        others = await self._call(known)
        for entity in ours:
            await self.entity(entity)
        for entity in others.difference(ours):
            await self._member(entity)
        await self._declare(self._subscriptions.blobs)

    async def entity(self, entity: EntityId) -> None:
        """Let one of our own be reached."""
        await self._declare(self._subscriptions.own, entity)
        await self.known(entity)

    async def known(self, entity: EntityId) -> None:
        """Tell whoever asks for the key of an entity that is known here."""
        await self._declare(self._subscriptions.known, entity)

    async def room(self, room_id: RoomId) -> None:
        """Hear and serve a room, and ask for what is missing of it."""
        if not await self._call(lambda engine: room_id in engine.here.ids):
            return  # forgotten meanwhile
        await self._declare(self._subscriptions.room, room_id)
        self._want(WantedRoom(room_id))
        self._came(room_id)
        await self.see(room_id)

    async def silence(self, room_id: RoomId) -> None:
        """Hear and serve a room no more, and be present there no longer."""
        self._last_event.pop(room_id, None)
        await self._declare(self._subscriptions.leave, room_id)
        await self._declare(self._presences.room, room_id, Company())

    async def see(self, room_id: RoomId) -> None:
        """Be present in a room, see who else is, and share drafts with our own other devices."""
        await self._speak(room_id)
        found = await self._call(partial(company, room_id=room_id))
        await self._declare(self._presences.room, room_id, found)
        for entity in found.silent:
            self._hand_over.soon(self._tokens.ask, room_id, entity)
        for entity in await self._call(partial(writers_of_drafts, room_id=room_id)):
            await self._declare(self._subscriptions.draft, room_id, entity)
            self._want(WantedDocument(doc_id("draft", room_id=room_id, entity_id=entity)))

    def ask_for(self, entity: EntityId) -> None:
        """Ask for what a member keeps for all their rooms."""
        for name in self._registry.schema.entity_documents(entity):
            self._want(WantedDocument(name))

    def is_quiet(self, room_id: RoomId) -> bool:
        """Tell whether nothing has happened in a room for a while."""
        return time.monotonic() - self._last_event.get(room_id, -math.inf) > QUIET_SECONDS

    def told(self, keyring: Keyring, rows: list[EventRow]) -> None:
        """Take what has happened, on the engine's thread."""
        now = time.monotonic()
        for row in rows:
            if row.room_id is None:
                continue
            self._last_event[row.room_id] = now
            if row.kind not in ("room.member.joined", "room.member.left"):
                continue
            self._hand_over.soon(self.see, row.room_id)
            entity = row.data.get("entity")
            if not isinstance(entity, str) or entity in keyring.local:
                continue
            if row.kind == "room.member.joined":
                self._hand_over.soon(self._member_came, row.room_id, entity, row.data.get("local") is True)
            elif row.data.get("by") in keyring.local:
                self._hand_over.soon(self._want, Withdrawal(row.room_id, entity))

    async def _speak(self, room_id: RoomId) -> None:
        speaker = await self._call(lambda engine: engine.roots.speaker(room_id))
        await self._declare(self._subscriptions.speaker, room_id, speaker)

    async def _member(self, entity: EntityId) -> None:
        await self._declare(self._subscriptions.member, entity)
        await self.known(entity)

    async def _member_came(self, room_id: RoomId, entity: EntityId, invited_here: bool) -> None:
        await self._member(entity)
        self.ask_for(entity)
        self._want(Offer(room_id, entity) if invited_here else Bringing(room_id, entity))

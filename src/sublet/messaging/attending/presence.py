"""Who is there, on the network: tokens of our own entities, and those of others, who are asked what they are about."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from sublet.messaging.attending.said_again import SaidAgain
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.identities.keyring import Keyring
from sublet.messaging.passing.ephemeral import AWARENESS, PRESENCE, Ephemeral
from sublet.messaging.ports.network import Network, PeerQuery, Sample
from sublet.messaging.rooms.states import RoomStates
from sublet.messaging.schema.schema import Schema
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id

MAX_FOLLOWED: Final = 256
"""Members of one room whose presence is followed; of more, the first by name."""

Undo = Callable[[], None]


class PresenceParts(Protocol):
    """The parts of the engine for telling who is present."""

    @property
    def rooms(self) -> RoomStates: ...

    @property
    def keyring(self) -> Keyring: ...

    @property
    def schema(self) -> Schema: ...

    @property
    def ephemeral(self) -> Ephemeral: ...


@dataclass(slots=True)
class Company:
    """Who of a room's members is ours, who is not, and of whom a token but no word has come."""

    own: frozenset[EntityId] = frozenset()
    others: frozenset[EntityId] = frozenset()
    silent: list[EntityId] = field(default_factory=list)


def company(engine: PresenceParts, room_id: RoomId) -> Company:
    """Return whose presence matters in a room; nobody's where it is not offered, or none of ours is a member."""
    state = engine.rooms.state(room_id)
    members = set(state.members())
    own = frozenset(members & set(engine.keyring.local))
    declared = engine.schema.datatype_at("ephemeral", PRESENCE) is not None
    if not own or not declared or PRESENCE not in state.enabled_extensions:
        return Company()
    others = frozenset(sorted(members - own)[:MAX_FOLLOWED])
    passing = engine.ephemeral
    silent = [one for one in others if passing.has_token(room_id, one) and passing.said(room_id, one) is None]
    return Company(own, others, silent)


class Presences:
    """Declares and undeclares; any thread may call.

    Args:
        network: where.
        heard: takes what others say.
        asked: takes queries for what ours are about.
        came: told that somebody's token has come or gone.
    """

    def __init__(
        self,
        network: Network,
        heard: Callable[[Sample], None],
        asked: Callable[[PeerQuery], None],
        came: Callable[[RoomId, EntityId, bool], None],
    ) -> None:
        self._network = network
        self._heard = heard
        self._asked = asked
        self._came = came
        self._lock = threading.Lock()
        self._declared: dict[tuple[RoomId, EntityId], list[Undo]] = {}

    def room(self, room_id: RoomId, found: Company) -> None:
        """Be present where ours are members, and follow the others; those who are no members any more no longer."""
        with self._lock:
            wanted = {(room_id, entity) for entity in found.own | found.others}
            gone = [key for key in self._declared if key[0] == room_id and key not in wanted]
            undo = [one for key in gone for one in self._declared.pop(key)]
            for key in sorted(wanted - set(self._declared)):
                declare = self._be if key[1] in found.own else self._follow
                self._declared[key] = declare(*key)
        for one in undo:
            one()
        for key in gone:
            self._came(*key, False)

    def _be(self, room_id: RoomId, entity: EntityId) -> list[Undo]:
        return [
            self._network.serve(_key(AWARENESS, room_id, entity), self._asked),
            self._network.announce(_key(PRESENCE, room_id, entity)),
        ]

    def _follow(self, room_id: RoomId, entity: EntityId) -> list[Undo]:
        return [
            self._network.subscribe(_key(AWARENESS, room_id, entity), self._heard),
            self._network.follow(_key(PRESENCE, room_id, entity), partial(self._came, room_id, entity)),
        ]


def _key(kind: str, room_id: RoomId, entity: EntityId) -> str:
    return doc_id("ephemeral", room_id=room_id, ext_id=kind, entity_id=entity)


class Tokens:
    """Takes in whose tokens have come or gone, the last that is known of each, however often it changes.

    What ours have said in a room is said again for whoever comes there.

    Args:
        call: runs something with the engine.
        fetch: asks peers under a key, and returns what they answer.
        heard: takes what they said.
        soon: has something done on the event loop, from any thread.
    """

    def __init__(
        self,
        call: CallEngine,
        fetch: Callable[[str, bytes], Awaitable[list[bytes]]],
        heard: Callable[[Sample], None],
        soon: Callable[..., None],
    ) -> None:
        self._call = call
        self._there: Callable[[EntityId], None] | None = None
        self._fetch = fetch
        self._heard = heard
        self._soon = soon
        self._said_again = SaidAgain(call, soon)
        self._lock = threading.Lock()
        self._changes: dict[tuple[RoomId, EntityId], bool] = {}
        self._asking: set[str] = set()

    def begin(self, there: Callable[[EntityId], None]) -> None:
        """Say from now on who has answered.

        Args:
            there: told of whoever has, and so knows by now that we share a room: from then on their daemon tells us
                what they keep for all their rooms, which it may not have done when they were invited.
        """
        self._there = there

    def came(self, room_id: RoomId, entity: EntityId, there: bool) -> None:
        """Note that somebody's token has come or gone; from any thread."""
        with self._lock:
            first = not self._changes
            self._changes[room_id, entity] = there
        if first:
            self._soon(self.take)

    async def take(self) -> None:
        """Take in what was noted; also from time to time, for what found no room to be handed over."""
        with self._lock:
            changes, self._changes = self._changes, {}

        def tell(engine: PresenceParts) -> None:
            for (room_id, entity), there in changes.items():
                engine.ephemeral.token(room_id, entity, there=there)

        if changes:
            await self._call(tell)
        self._said_again.want({room_id for (room_id, _), there in changes.items() if there})
        for key, there in changes.items():
            if there:
                self._soon(self.ask, *key)

    async def ask(self, room_id: RoomId, entity: EntityId) -> None:
        """Ask somebody what they are about, which they sign just then, since a token proves nothing."""
        key = _key(AWARENESS, room_id, entity)
        if key in self._asking:
            return
        self._asking.add(key)
        try:
            answers = await self._fetch(key, b"")
            for answer in answers:
                self._heard(Sample(key, answer, b""))
            if answers and self._there is not None:
                self._there(entity)
        finally:
            self._asking.discard(key)

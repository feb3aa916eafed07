"""Asks peers for what is missing here, and goes on until nothing more comes.

Rules: what was asked for waits in a queue without doubles, who is asked and for how long is decided by ``asking.py``,
and what a peer answers is verified like live updates. Weak: whoever answers with nothing is not told apart from who has
nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import anyio
import structlog
from nacl.signing import VerifyKey

from sublet.messaging.accepting.arrival import ArrivalReport
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.parts import parts_of
from sublet.messaging.ports.network import ANYBODY, Network
from sublet.messaging.syncing import differences
from sublet.messaging.syncing.answers import offer
from sublet.messaging.syncing.asking import Answer, Asking, Late
from sublet.messaging.syncing.doorkeeper import ask
from sublet.messaging.syncing.reconciler import MAX_KEYS, Reconciler
from sublet.messaging.syncing.wanted import (
    Bringing,
    Doubted,
    Offer,
    Wanted,
    WantedDocument,
    WantedKey,
    WantedRoom,
    Withdrawal,
)
from sublet.protocol.ezagent.bundle import Bundle, decode_bundle
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.inbox import encode_known, seal_offer
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id, parse_doc_id
from sublet.protocol.ezagent.shards import MAX_SUB_SHARD, previous_month, sub_shard
from sublet.protocol.ezagent.yjs.vectors import encode_vector
from sublet.tasks import start_alone

log = structlog.get_logger(__name__)
T = TypeVar("T")

OFFERS: Final = 12
"""How often a room is offered, each time after twice as long: for three minutes."""
BRING_SECONDS: Final = 1.0
"""How long others leave it to whoever has invited somebody to bring them in."""
MAX_SINGLE: Final = 32
"""Names that are asked for one by one since somebody has said something; beyond that their rooms are reconciled."""
AGAIN_SECONDS: Final = 1.0
"""How often a member's question makes us compare a room with it."""
MAX_TOLD: Final = 16_384
MAX_ROUNDS: Final = 10_000
SETTLE_SECONDS: Final = 0.05
"""How long changes of links and gaps are gathered before somebody is asked."""


class Sync:
    """Asks peers for what we lack.

    Args:
        network: whom to ask.
        call: runs something with the engine.
        known: told whose keys were learnt.
        recovered: told that a peer answers again that was asked last.
    """

    def __init__(
        self,
        network: Network,
        call: CallEngine,
        known: Callable[[EntityId], Awaitable[None]],
        recovered: Callable[[], object] = lambda: None,
    ) -> None:
        self.asking = Asking(network, recovered)
        self._call = call
        self._known = known
        self._wanted: dict[Wanted, None] = {}
        self._doubted: set[Doubted] = set()
        self._again: set[Doubted] = set()
        self._unanswered: set[RoomId] = set()
        self._ready = anyio.Event()
        self._told: dict[RoomId, float] = {}
        self._locks: dict[str, anyio.Lock] = {}
        self._reconciler = Reconciler(call, self)

    def want(self, wanted: Wanted) -> None:
        """Ask for something, or tell something, soon; on the event loop."""
        self._wanted[wanted] = None
        self._ready.set()

    def doubt(self, doubted: Doubted) -> None:
        """Want something that somebody claims to be there, or to lack; of very much, its room instead."""
        if doubted in self._doubted:
            self._again.add(doubted)
        elif isinstance(doubted, WantedRoom) or len(self._doubted) < MAX_SINGLE:
            self._doubted.add(doubted)
            self.want(doubted)
        elif isinstance(doubted, WantedDocument) and (room_id := parse_doc_id(doubted.name).room_id) is not None:
            self.doubt(WantedRoom(room_id))

    def patience(self, peer: str) -> float:
        """``Asks.patience``."""
        return self.asking.grace((peer,))

    def differs(self, room_id: RoomId) -> None:
        """Reconcile a room soon, since a member has stated another root than ours; once in ``AGAIN_SECONDS``."""
        now = anyio.current_time()
        if now - self._told.get(room_id, -AGAIN_SECONDS) < AGAIN_SECONDS:
            return
        if len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told[room_id] = now
        self.doubt(WantedRoom(room_id))

    async def run(self) -> None:
        """Ask for what is wanted until cancelled."""
        async with anyio.create_task_group() as group:
            while True:
                await self._ready.wait()
                await anyio.sleep(SETTLE_SECONDS)
                wanted, self._wanted, self._ready = list(self._wanted), {}, anyio.Event()
                for one in wanted:
                    start_alone(group, "asking for what is missing", self._one, one)

    async def _one(self, wanted: Wanted) -> None:
        try:
            await self._do(wanted)
        except Exception:
            log.exception("could not ask for what is missing", what=wanted)
        finally:
            if isinstance(wanted, WantedDocument | WantedRoom | WantedKey):
                self._doubted.discard(wanted)
                if wanted in self._again:
                    self._again.discard(wanted)
                    self.doubt(wanted)

    async def _do(self, wanted: Wanted) -> None:
        match wanted:
            case WantedDocument(name, of):
                await self.document(name, of)
            case WantedRoom(room_id):
                await self.room(room_id)
            case WantedKey(entity):
                await self.key(entity)
            case Offer(room_id, entity):
                await self.offer(room_id, entity)
            case Withdrawal(room_id, entity):
                await self.withdraw(room_id, entity)
            case Bringing(room_id, entity):
                await self.bring(room_id, entity)

    async def room(self, room_id: RoomId) -> None:
        """Ask for a room's config, and for all that members hold of it and we don't.

        Who states nothing, as one who has left, may have the last that was written, and is asked for the config and the
        newest shard. Of a room that is new here these come first, of all. One at a time for each room.
        """
        async with self._one_at_a_time(f"room:{room_id}"):
            await self._room(room_id)

    async def _room(self, room_id: RoomId) -> None:
        is_known = await self._call(lambda engine: engine.roots.speaker(room_id) is not None)
        if not is_known:  # nobody tells its root who does not know us to be in it, so that may be all there is
            await self.newest(room_id)
        compared = await self._reconciler.room(room_id)
        config = doc_id("config", room_id=room_id)
        if compared.heard:
            self._unanswered.discard(room_id)
            if of := await self._others(config, compared.alike):
                await self.document(config, of)
                await self._months(room_id, await self._call(partial(differences.older_shards, room_id=room_id)), of)
            return
        self._unanswered.add(room_id)
        await self.document(config)
        for name in await self._call(partial(differences.of_extensions, room_id=room_id)):
            await self.document(name)
        await self._months(room_id)

    async def newest(self, room_id: RoomId) -> None:
        """``Asks.newest``."""
        await self.document(doc_id("config", room_id=room_id))
        if await self._call(partial(differences.newest_shard, room_id=room_id)) is None:
            await self._months(room_id)

    async def _others(self, name: str, alike: Collection[str]) -> frozenset[str]:
        """Return the peers that can be asked for a document now and are not alike; and one of those who are.

        That one has nothing new, and answers: so nobody waits for others of whom none ever does.
        """
        may = await self._call(lambda engine: engine.audience.answers(name, b""))
        others = frozenset(
            peer
            for peer in self.asking.linked()
            if peer not in alike and (peer == ANYBODY or may is None or peer in may)
        )
        return others.union(sorted(alike)[:1]) if others else others

    async def _months(self, room_id: RoomId, alike: Collection[str] = (), of: Collection[str] | None = None) -> None:
        """Ask these peers, or all, for this month and the one before."""
        this = await self._call(lambda engine: engine.shards.current_month())
        ahead = await self._call(partial(differences.months_ahead, room_id=room_id))
        for month in (previous_month(this), this, *ahead):
            await self.month(room_id, month, alike, of)

    def take_unanswered(self) -> set[RoomId]:
        """Return the rooms of which no member has answered since the last call, or is alone in; some may be gone."""
        found, self._unanswered = self._unanswered, set()
        return found

    async def month(
        self, room_id: RoomId, month: str, alike: Collection[str] = (), of: Collection[str] | None = None
    ) -> int:
        """Ask for a month's shards, the next one until one is empty; return how many updates came.

        Args:
            room_id: the room.
            month: ``YYYY-MM``.
            alike: documents that are here as everywhere else, and so are not asked for.
            of: node ids of the peers that are asked; None for all that may know.
        """
        total = 0
        for index in range(MAX_SUB_SHARD + 1):
            name = doc_id("index", room_id=room_id, shard_id=sub_shard(month, index))
            if name in alike:
                continue
            total += await self.document(name, of)
            if await self._call(partial(differences.is_empty, name=name)):
                break
        return total

    async def document(self, name: str, of: Collection[str] | None = None) -> int:
        """Ask for what a document lacks, until nobody has more; return how many updates came.

        One at a time for each document.

        Args:
            name: its id.
            of: node ids of the peers that are asked; None for all that may know.
        """
        async with self._one_at_a_time(name):
            return await self._document(name, of)

    @asynccontextmanager
    async def _one_at_a_time(self, name: str) -> AsyncIterator[None]:
        """Do one thing after the other that is asked for by one name: whoever comes second finds what is left."""
        lock = self._locks.setdefault(name, anyio.Lock())
        try:
            async with lock:
                yield
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._locks.pop(name, None)

    async def _document(self, name: str, of: Collection[str] | None) -> int:
        place = parse_doc_id(name)
        total = 0
        for _ in range(MAX_ROUNDS):
            vector = await self._call(partial(differences.vector, name=name))
            late = partial(self._late, name)
            answers = await self._answers(channel_key(name, Channel.STATE), encode_vector(vector), late, of)
            outcome = ArrivalReport()
            for answer in answers:
                outcome.add(await self._take_of(place.room_id, answer))
            for signer in list(outcome.unknown_signers)[:MAX_KEYS]:
                await self.key(signer)
            total += outcome.accepted
            for other in outcome.gaps - {name}:  # what writers of this document had seen in another one
                self.doubt(WantedDocument(other))
            if not any(answer.said.more for answer in answers) and name not in outcome.gaps:
                return total
            if not outcome.accepted and await self._call(partial(differences.vector, name=name)) == vector:
                return total
        return total

    async def key(self, entity: EntityId) -> None:
        """Ask for an entity's key."""
        for bundle in await self._ask(doc_id("pubkey", entity_id=entity), b""):
            await self.take(None, bundle)
        if await self._call(lambda engine: engine.keyring.record(entity) is not None):
            await self._known(entity)

    async def offer(self, room_id: RoomId, entity: EntityId) -> None:
        """Tell an entity that it is a member of a room, until it has heard; who is away asks when it comes back."""
        await self._until(partial(self._offered, room_id, entity))

    async def withdraw(self, room_id: RoomId, entity: EntityId) -> None:
        """Tell an entity that its invitation to a room was taken back, until it has heard, as with an offer."""
        await self._until(partial(self._offered, room_id, entity, over=(room_id,)))

    async def _until(self, told: Callable[[], Awaitable[bool]]) -> None:
        wait = SETTLE_SECONDS
        for _ in range(OFFERS):
            if await told():
                return
            await anyio.sleep(wait)
            wait *= 2

    async def bring(self, room_id: RoomId, entity: EntityId) -> None:
        """Tell an entity once that it is a member of a room, if it is not there: who invited it may not reach it."""
        await anyio.sleep(BRING_SECONDS)
        if await self._call(lambda engine: not engine.ephemeral.is_present(room_id, entity)):
            await self._offered(room_id, entity)

    async def _offered(self, room_id: RoomId, entity: EntityId, over: Collection[RoomId] = ()) -> bool:
        """Tell an entity of a room; return whether it has heard, or there is nothing to tell."""
        payload = await self._call(partial(offer, entity=entity, rooms=[] if over else [room_id], over=over))
        key = channel_key(doc_id("inbox", entity_id=entity), Channel.UPDATES)
        if payload is None:
            return True
        if await self._call(lambda engine: engine.seals.is_sealed(room_id)):
            record = await self._call(lambda engine: engine.keyring.record(entity))
            if record is None:  # nothing can be sealed for whom nobody knows
                await self.key(entity)
                return False
            keys = await self._call(lambda engine: engine.keyring.speaking(entity)) or (VerifyKey(record.key),)
            return any([bool(await self.ask(key, seal_offer(one, payload))) for one in keys])
        return bool(await self.ask(key, payload))

    async def inbox(
        self, entity: EntityId, known: Collection[RoomId], of: Collection[str] | None = None
    ) -> list[Answer[Bundle]]:
        """Ask these peers, or all, which rooms one of our entities is a member of, beside those that are known."""
        return await self._answers(doc_id("inbox", entity_id=entity), encode_known(known), of=of)

    async def ask(self, key: str, payload: bytes) -> list[bytes]:
        """Ask those who may know what is at a key, and return what they answer as it came."""
        peers = await self._call(lambda engine: engine.audience.answers(key, b""))
        return [answer.said for answer in await self.asking.ask(key, payload, peers, _as_it_came)]

    async def fetch(self, key: str, body: bytes, of: Collection[str] | None = None) -> list[bytes]:
        """Ask as one of ours who may be told, and return the answers, opened; nobody is asked where none may."""
        return [answer.said for answer in await self._fetch(key, body, _as_it_came, of=of)]

    async def fetch_from(self, key: str, body: bytes, late: Late[bytes]) -> list[Answer[bytes]]:
        """``Asks.fetch_from``."""
        return await self._fetch(key, body, _as_it_came, late)

    async def _fetch(
        self,
        key: str,
        body: bytes,
        opens: Callable[[bytes], T],
        late: Late[T] | None = None,
        of: Collection[str] | None = None,
    ) -> list[Answer[T]]:
        asked, peers = await self._call(lambda engine: (ask(engine, key, body), engine.audience.answers(key, body)))
        if asked is None:
            return []
        if of is not None:
            peers = frozenset(of) if peers is None else peers.intersection(of)
        return await self.asking.ask(key, asked.payload, peers, lambda raw: opens(asked.opened(raw)), late)

    async def _take_of(self, room_id: RoomId | None, answer: Answer[Bundle]) -> ArrivalReport:
        """Take an answer, and note where it holds something that nobody has signed."""
        outcome = await self.take(room_id, answer.said)
        if outcome.forged:
            self.asking.forged(answer.peer, sum(len(raw) for _, raw in answer.said.records))
        return outcome

    async def _late(self, name: str, answer: Answer[Bundle]) -> None:
        """Take an answer about a document for which nobody has waited, and ask for the rest of it."""
        outcome = await self._take_of(parse_doc_id(name).room_id, answer)
        for signer in list(outcome.unknown_signers)[:MAX_KEYS]:
            self.doubt(WantedKey(signer))
        if name in outcome.gaps or (answer.said.more and outcome.accepted):
            self.doubt(WantedDocument(name))

    async def take(self, room_id: RoomId | None, bundle: Bundle) -> ArrivalReport:
        """Take an answer part by part, between which the engine's thread has time for others."""
        outcome = ArrivalReport()
        for part in parts_of(bundle):
            outcome.add(await self._call(partial(differences.take, room_id=room_id, bundle=part)))
        return outcome

    async def _ask(self, key: str, body: bytes, late: Late[Bundle] | None = None) -> list[Bundle]:
        return [answer.said for answer in await self._answers(key, body, late)]

    async def _answers(
        self, key: str, body: bytes, late: Late[Bundle] | None = None, of: Collection[str] | None = None
    ) -> list[Answer[Bundle]]:
        return await self._fetch(key, body, decode_bundle, late, of)


def _as_it_came(answer: bytes) -> bytes:
    return answer

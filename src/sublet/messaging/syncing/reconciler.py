"""Brings a room to what its members hold: compares signed roots, follows what differs, and fetches it.

Rules: roots come first, and where all are alike nothing else is asked. Else the config is, which says whose roots
count; then one member after the other is compared with, and after each of them all that could be taken is here. Where
one takes longer than it does as a rule the next one is compared with beside it, and once the others are done nobody
waits for it: it is asked again later. What is named is kept until it was told, so whoever is stopped goes on with it.
Weak: a member of whom nothing can be taken is compared with again only once one of both roots changes, so a root that
changes all the time costs an exchange each time. Who states our root and holds more keeps that from nobody but itself:
the other members are compared with all the same, and what it publishes shows the gap.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import SystemRandom
from typing import Final, Protocol

import anyio
import structlog

from sublet.messaging.accepting.arrival import ArrivalReport
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.reconciling.exchange import Exchange, below
from sublet.messaging.reconciling.logs import RoomTree, first_question, go_on_at, wanted
from sublet.messaging.reconciling.roots import Theirs
from sublet.messaging.syncing.asking import Answer, Late
from sublet.messaging.syncing.differences import SyncParts
from sublet.messaging.syncing.stated import Stated, alike, settle, stated_of
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle
from sublet.protocol.ezagent.digest_tree import SALT_BYTES, Prefix
from sublet.protocol.ezagent.errors import Refused, malformed
from sublet.protocol.ezagent.ids import EntityId, RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.reconciliation import MAX_LOGS, NodesAsked, decode_differing, encode_logs, encode_nodes

MAX_KEYS: Final = 64
"""Signers of one answer whose keys are asked for; an honest one holds the records of all."""
STALL_SECONDS: Final = 1.0
"""How long a member with which a room is compared may answer nothing while nobody else is waited for."""
FETCHED_AT_ONCE: Final = 2
"""Questions for logs to one member that are not answered, or whose answers are being taken in."""
MAX_PARTS: Final = 10_000
"""Answers to questions for the logs of one exchange that bring nothing, or are cut; the rest is for later."""

log = structlog.get_logger(__name__)


class Asks(Protocol):
    """What asks peers, and has taken what they answer."""

    async def fetch(self, key: str, body: bytes, of: Collection[str] | None = None) -> list[bytes]:
        """Ask these daemons as one of ours, or all that may know, and return the answers, opened."""

    async def fetch_from(self, key: str, body: bytes, late: Late[bytes]) -> list[Answer[bytes]]:
        """Do so, and return with each answer who has given it; ``late`` is told of those that come later."""

    async def newest(self, room_id: RoomId) -> None:
        """Ask for a room's config, and for the newest months of one that is new here."""

    def patience(self, peer: str) -> float:
        """Return after how many seconds others are asked beside a daemon that has not answered."""

    def differs(self, room_id: RoomId) -> None:
        """Reconcile a room soon."""

    async def take(self, room_id: RoomId | None, bundle: Bundle) -> ArrivalReport:
        """Take an answer in."""

    async def key(self, entity: EntityId) -> None:
        """Ask for an entity's key."""


@dataclass(frozen=True, slots=True)
class Compared:
    """With whom a room was compared.

    Args:
        heard: whether any member has stated what it holds.
        alike: node ids of the daemons that have signed the root that is ours now. Whose root is another one is none of
            them, though all was taken that could be: it may be that more can be now.
    """

    heard: bool
    alike: frozenset[str] = frozenset()


@dataclass(slots=True, eq=False)
class _With:
    """A member that is compared with."""

    room_id: RoomId
    theirs: Theirs
    home: str
    """The daemon that has stated it: another device of the same member may hold something else."""
    patience: float
    """Seconds after which others are compared with beside it."""
    salt: bytes = field(default_factory=partial(os.urandom, SALT_BYTES))
    left: list[int] = field(default_factory=list)
    """How much of each answer could not be taken, or not yet; one more with each answer."""
    turned: anyio.Event = field(default_factory=anyio.Event)
    """Set once the next one may be compared with: it is done, or slow."""
    done: anyio.Event = field(default_factory=anyio.Event)
    failed: list[Exception] = field(default_factory=list)

    @property
    def key(self) -> str:
        return doc_id("tree", room_id=self.room_id, entity_id=self.theirs.entity)


class Reconciler:
    """Compares rooms with their members; on the event loop.

    Args:
        call: runs something with the engine.
        asks: asks peers.
    """

    def __init__(self, call: CallEngine, asks: Asks) -> None:
        self._call = call
        self._asks = asks
        self._locks: dict[RoomId, anyio.Lock] = {}

    async def room(self, room_id: RoomId) -> Compared:
        """Bring a room to what the members who can be reached hold; tell with whom it was compared.

        One at a time for each room: whoever comes second finds what is left.
        """
        lock = self._locks.setdefault(room_id, anyio.Lock())
        try:
            async with lock:
                return await self._room(room_id)
        finally:
            if not lock.locked() and not lock.statistics().tasks_waiting:
                self._locks.pop(room_id, None)

    async def _room(self, room_id: RoomId) -> Compared:
        ours = await self._call(lambda engine: engine.roots.statement(room_id))
        if ours is None:
            return Compared(heard=False)
        late = partial(self._late, room_id)
        answers = await self._asks.fetch_from(doc_id("root", room_id=room_id), ours, late)
        members = await self._stated(room_id, answers)
        if len(members) < len(answers) or any(one.differs for one in members.values()):
            await self._asks.newest(room_id)
            members = await self._stated(room_id, answers)
        began: list[_With] = []
        async with anyio.create_task_group() as group:
            for one in members.values():
                if await self._differs(room_id, one.theirs):  # still: much may have come of those before it
                    other = _With(room_id, one.theirs, one.home, self._asks.patience(one.home))
                    began.append(other)
                    group.start_soon(self._compared, other)
                    await other.turned.wait()
            if not await _all_done(began, len(members)):
                group.cancel_scope.cancel()
                self._asks.differs(room_id)
        for other in began:
            for error in other.failed:
                raise error
        return Compared(bool(members), await self._call(partial(alike, room_id=room_id, members=members)))

    async def _stated(self, room_id: RoomId, answers: Sequence[Answer[bytes]]) -> dict[Answer[bytes], Stated]:
        """Take what members state, one after the other, and return that of those whose roots count."""
        found = {answer: await self._call(partial(stated_of, room_id=room_id, answer=answer)) for answer in answers}
        return {answer: one for answer, one in found.items() if one is not None}

    async def _differs(self, room_id: RoomId, theirs: Theirs) -> bool:
        return await self._call(lambda engine: engine.roots.differs(room_id, theirs))

    async def _late(self, room_id: RoomId, answer: Answer[bytes]) -> None:
        """Take the root of a member for whom nobody has waited."""
        stated = await self._call(partial(stated_of, room_id=room_id, answer=answer))
        if stated is not None and stated.differs:
            self._asks.differs(room_id)

    async def _compared(self, other: _With) -> None:
        try:
            await self._reconcile(other)
        except Exception as error:  # told once the others are done
            other.failed.append(error)
        finally:
            other.turned.set()
            other.done.set()

    async def _reconcile(self, other: _With) -> None:
        """Take what a member has and we lack, and look whether that is what it has signed."""
        exchange = Exchange(SystemRandom())
        try:
            due = await self._call(lambda engine: engine.store.tree.due(other.room_id, MAX_LOGS))
            if due:
                await self._fetch(other, due)
            await self._follow(other, exchange)
        except Refused as refused:
            log.info("a member could not be compared with", member=other.theirs.entity, detail=refused.detail)
            return
        if exchange.is_given_up:
            log.warning("a member tells of much that can't be taken", member=other.theirs.entity, room=other.room_id)
        is_all = not exchange.is_given_up and not sum(other.left)
        await self._call(partial(settle, room_id=other.room_id, theirs=other.theirs, is_all=is_all))

    async def _follow(self, other: _With, exchange: Exchange) -> None:
        """Follow what differs, and fetch it.

        While one answer is taken in the next ones are asked for, so that neither side waits for the other.

        Raises:
            Refused: the member has not answered, or nothing that could be read.
            SubletError: ``UNAVAILABLE``: what came can't be kept.
        """
        send, receive = anyio.create_memory_object_stream[Sequence[bytes]](0)
        failed: list[Refused | SubletError] = []
        both = anyio.CancelScope()

        async def run(step: Callable[[], Awaitable[None]]) -> None:
            try:
                await step()
            except (Refused, SubletError) as error:
                failed.append(error)
                both.cancel()

        async def follow() -> None:
            with send:
                found: list[bytes] = []
                while asked := exchange.next():
                    tell = partial(_below, room_id=other.room_id, asked=asked, salt=other.salt)
                    answer = await self._ask(other, await self._call(tell))
                    found += exchange.told(asked, decode_differing(answer, len(asked)))
                    while len(found) >= MAX_LOGS:
                        await send.send(found[:MAX_LOGS])
                        del found[:MAX_LOGS]
                if found:
                    await send.send(found)

        async def fetch() -> None:
            async for places in receive:
                if await self._fetch(other, places):
                    exchange.progressed()

        with receive, both:
            async with anyio.create_task_group() as group:
                for step in (follow, *[fetch] * FETCHED_AT_ONCE):
                    group.start_soon(run, step)
        if failed:
            raise failed[0]

    async def _fetch(self, other: _With, places: Sequence[bytes]) -> bool:
        """Fetch what is at some places, which are kept as long as they were not told; tell whether anything came.

        Raises:
            Refused: the member has not answered, or nothing that could be read.
        """
        await self._call(partial(_put_due, room_id=other.room_id, places=places))
        came, done = False, 0
        ask = partial(wanted, room_id=other.room_id, salt=other.salt)
        logs = await self._call(partial(ask, places=places))
        for _ in range(MAX_PARTS):
            if done >= len(logs):
                break
            question = first_question(logs[done:], other.salt)
            answer = decode_bundle(await self._ask(other, encode_logs(question)))
            outcome = await self._asks.take(other.room_id, answer)
            other.left.append(outcome.left)
            for signer in list(outcome.unknown_signers)[:MAX_KEYS]:
                await self._asks.key(signer)
            came = came or outcome.accepted > 0 or bool(answer.of(RecordKind.FORK))
            told = go_on_at(answer, question)
            done += told
            if told < len(question.logs):  # some of that one was told, so what is asked next is what is beyond that
                before = logs[done]
                tell = partial(ask, places=[before.place])
                now = [log for log in await self._call(tell) if log.clients == before.clients]
                if not told and now in ([], [before]):
                    done += 1
                elif now:
                    logs[done] = now[0]
        other.left.append(len(logs) - done)
        await self._call(partial(_drop_due, room_id=other.room_id, places=places))
        return came

    async def _ask(self, other: _With, body: bytes) -> bytes:
        """Ask a member.

        Raises:
            Refused: it has not answered.
        """
        slow = asyncio.get_running_loop().call_later(other.patience, other.turned.set)
        try:
            answers = await self._asks.fetch(other.key, body, (other.home,))
        finally:
            slow.cancel()
        if not answers:
            raise malformed("no answer")
        other.left.append(0)
        return answers[0]


async def _all_done(began: Sequence[_With], members: int) -> bool:
    """Wait until all are done; tell whether they are.

    Where others are, or have nothing that differs, who is waited for may be silent for ``STALL_SECONDS`` at most.
    """
    while waited_for := [one for one in began if not one.done.is_set()]:
        before = sum(len(one.left) for one in waited_for)
        with anyio.move_on_after(STALL_SECONDS):
            for one in waited_for:
                await one.done.wait()
        if len(waited_for) < members and before == sum(len(one.left) for one in waited_for):
            return all(one.done.is_set() for one in waited_for)
    return True


async def sum_up(call: CallEngine) -> bool:
    """Sum up what an older version has written, so that rooms can be compared; tell whether there was anything."""
    if await call(lambda engine: engine.store.tree.is_built):
        return False
    while await call(_sum_up_some):
        pass
    return True


def _sum_up_some(engine: SyncParts) -> bool:
    with engine.store.transaction():
        return engine.store.tree.build_some()


def _below(engine: SyncParts, room_id: RoomId, asked: Sequence[Prefix], salt: bytes) -> bytes:
    tree = RoomTree(engine.store, room_id)
    return encode_nodes(NodesAsked(salt, tuple(below(tree, prefix, salt) for prefix in asked)))


def _put_due(engine: SyncParts, room_id: RoomId, places: Sequence[bytes]) -> None:
    with engine.store.transaction():
        engine.store.tree.put_due(room_id, places)


def _drop_due(engine: SyncParts, room_id: RoomId, places: Sequence[bytes]) -> None:
    with engine.store.transaction():
        engine.store.tree.drop_due(room_id, places)

"""Messaging as the daemon uses it: operations as coroutines, the stream of events, and everything behind them."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, overload

import anyio
import anyio.abc
import anyio.lowlevel
import anyio.to_thread
from anyio.abc import TaskGroup

from sublet.messaging.accepting.arrival import ArrivalReport
from sublet.messaging.attending.attending import Attending, Declaring
from sublet.messaging.attending.presence import Presences, Tokens
from sublet.messaging.attending.subscriptions import Subscriptions
from sublet.messaging.backends.blob_files import FileBlobs
from sublet.messaging.backends.sqlite_file import not_kept
from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.bus import Bus, stream
from sublet.messaging.calls.engine_call import AnswerT, EngineCall, Parameters
from sublet.messaging.declaring.asking import AskingContext, run_waiting
from sublet.messaging.declaring.operating import OperationParts
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.delivery.cursors import take_up
from sublet.messaging.delivery.delivery import Delivery
from sublet.messaging.delivery.loops import LoopLimits, Loops
from sublet.messaging.delivery.receipts import UNDELIVERABLE_SECONDS
from sublet.messaging.engine.engine import Engine
from sublet.messaging.engine.rebuilding import rebuild_again
from sublet.messaging.erasing.erasing import Erasing
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.membership.agreed import keep_agreed
from sublet.messaging.membership.answering import Answering
from sublet.messaging.membership.catching_up import CatchingUp
from sublet.messaging.membership.consent import AskAlways, ConsentRules
from sublet.messaging.membership.forgetting import Forgetting
from sublet.messaging.membership.joining import Joining
from sublet.messaging.membership.looking import find_room
from sublet.messaging.membership.other_devices import OtherDevices
from sublet.messaging.ports.agreed import KeepsAgreed
from sublet.messaging.ports.network import Network, PeerQuery
from sublet.messaging.quotas.usage import DEFAULT_DAEMON_BYTES
from sublet.messaging.reconciling.contradictions import Lie
from sublet.messaging.running.hand_over import HandOver
from sublet.messaging.running.owner import Owner
from sublet.messaging.running.sender import Reply
from sublet.messaging.syncing import answers
from sublet.messaging.syncing.doorkeeper import Doorkeeper, hides_length
from sublet.messaging.syncing.history import History
from sublet.messaging.syncing.stated import differs_at_asker
from sublet.messaging.syncing.sync import Sync
from sublet.messaging.syncing.wanted import WantedDocument, WantedKey
from sublet.messaging.watching.news import EventsFound, News
from sublet.messaging.watching.watchers import Watchers
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.ids import EntityId, RoomId, entity_domain
from sublet.protocol.ezagent.question import seal_answer
from sublet.protocol.ezagent.yjs.vectors import decode_vector
from sublet.tasks import Service, Services

MAX_BLOBS_BYTES: Final = 1 << 30  # of all files of rooms together
ResultT = TypeVar("ResultT")


class MessagingService:
    """All of messaging in one daemon.

    Args:
        path: the database's file.
        registry: what is declared.
        network: how peers are reached.
        local: our own entities.
        now_ms: the clock, Unix milliseconds.
        accept_invitation: tells whether the entities of a daemon, by its node id, may invite ours at all.
        patience_seconds: after which a message that no daemon has acknowledged is undeliverable.
        limits: how far agents may answer each other; None for any number of times.
        daemon_bytes: of all that the entities of one other daemon have written, in all rooms.
        make_entity: loads or makes the key of another entity of ours, by its local part; may block.
        services: keeps what messaging runs for as long as it lives.
        consent: decides which invitations are taken up without anybody's yes; by default none are.
        damaged: told where SQLite says that the database is damaged.
        agreed: keeps which rooms were agreed to beside the database; None for nowhere.
        lacking: told where something is found to be gone from the database.
    """

    def __init__(
        self,
        path: Path,
        registry: Registry,
        network: Network,
        local: list[LocalEntity],
        now_ms: Callable[[], int],
        accept_invitation: Callable[[str], bool],
        patience_seconds: float = UNDELIVERABLE_SECONDS,
        limits: LoopLimits | None = None,
        make_entity: Callable[[str], LocalEntity] | None = None,
        daemon_bytes: int = DEFAULT_DAEMON_BYTES,
        services: Services | None = None,
        consent: ConsentRules | None = None,
        damaged: Callable[[], None] = lambda: None,
        lacking: Callable[[], None] = lambda: None,
        agreed: KeepsAgreed | None = None,
    ) -> None:
        self._services, self._damaged, self._lacking, self._agreed = services or Services(), damaged, lacking, agreed
        self._path, self._registry = path, registry
        self.home: Callable[[EntityId], str] = entity_domain  # node id of its daemon, as far as it is known
        self.ahead_ms: dict[str, int] = {}  # other clocks that differ, by node id
        self.contradicted: dict[tuple[RoomId, EntityId], Lie] = {}  # whose signed roots are, by room and member
        self._network, self._local, self._now_ms = network, list(local), now_ms
        self._make_entity, self._daemon_bytes = make_entity, daemon_bytes
        self._hand_over, self._broken = HandOver(), anyio.Event()
        self._owner = Owner(self._make_engine, network, self._answer, self._outcome, self._hand_over.settle)
        self._loops = Loops(limits) if limits is not None else None
        self._watchers, self._doorkeeper = Watchers(self._owner.settle), Doorkeeper()
        self._news = News(self._call, self._owner, self._watchers, self._loops)
        self._tokens = Tokens(self._call, self.fetch, self._owner.heard, self._hand_over.soon)
        declaring = Declaring()
        self.asking = self._sync = Sync(network, self._call, self._known, self._recovered)
        self.asked_last = self._sync.asking.asked_last
        self.delivery = Delivery(self._sync.asking, self._call, patience_seconds, self._sync.want, self._hand_over.soon)
        self._history, self.erasing = History(self._sync, self._call), Erasing(self._call, path, self.fetch)
        self.invited = Answering(self._call, self._sync, self._stranger, self._hand_over.soon)
        accepting = accept_invitation, consent or AskAlways(), self._trial, self._enter
        self._joining = Joining(self._call, declaring, self._sync, *accepting, self.invited, self._hand_over)
        self.invited.begin(self._joining)
        self._attending = Attending(
            self._call,
            declaring,
            registry,
            Subscriptions(
                network,
                self._owner.heard,
                self._owner.asked,
                self._joining.invited,
                self.delivery.heard,
                registry.schema.entity_documents,
            ),
            Presences(network, self._owner.heard, self._owner.asked, self._tokens.came),
            self._tokens,
            self._sync.want,
            self._hand_over,
            self.delivery.want,
        )
        self._catching_up = CatchingUp(
            self._call, self._attending, self._joining, self._tokens, self._sync, self._history, self._own, network.met
        )
        self.devices = OtherDevices(self._call, self._sync.want, self.delivery.say_here)
        self.forgetting = Forgetting(self._call, self._attending.silence)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[MessagingService]:
        """Run while the context is open."""
        self._hand_over.begin(self._catching_up.everything)
        try:
            await anyio.to_thread.run_sync(self._owner.start, partial(self._hand_over.at_once, self._broken.set))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._end)
            raise
        async with anyio.create_task_group() as group:
            try:
                group.start_soon(self._until_broken)
                self._sync.asking.begin(group)
                self._start(group, "hand over", partial(self._hand_over.dispatch, group))
                self._start(group, "synchronisation", self._sync.run)
                self._start(group, "acknowledgements", self.delivery.run)
                self._start(group, "catching up", self._catching_up.run)
                self._start(group, "erasing", self.erasing.run)
                for name, index in self._registry.indexes.items():
                    if index.rebuild is not None and (every := index.every_seconds) is not None:
                        self._start(group, f"index {name}", partial(rebuild_again, self._call, index.rebuild, every))
                await self._begin()
                yield self
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._end)

    async def _until_broken(self) -> None:
        await self._broken.wait()
        raise RuntimeError("the thread of the engine has ended")

    def _start(self, group: TaskGroup, name: str, serve: Callable[[], Awaitable[None]]) -> None:
        self._services.start(group, Service(f"rooms: {name}", serve))

    @property
    def level(self) -> int | None:
        """Return the compliance level (ezagent 6.3)."""
        return self._registry.level

    def bus(self, entity: EntityId) -> Bus:
        """Return the operations as one of our entities."""
        return Bus(
            self._registry,
            lambda name, arguments: self.call(entity, name, **arguments),
            lambda since, room_id: stream(partial(self.watch, entity), self.cursor, since, room_id),
        )

    async def add(self, entity: LocalEntity) -> None:
        """Take another entity of ours, which can be reached from then on."""
        self._local.append(entity)
        await self._call(lambda engine: engine.keyring.add(entity))
        await self._attending.entity(entity.record.entity_id)
        await self._joining.ask(entity.record.entity_id)

    @overload
    async def call(
        self,
        entity: EntityId,
        operation: EngineCall[Parameters, AnswerT],
        /,
        *args: Parameters.args,
        **arguments: Parameters.kwargs,
    ) -> AnswerT: ...

    @overload
    async def call(self, entity: EntityId, operation: str, /, **arguments: Any) -> Any: ...

    async def call(
        self, entity: EntityId, operation: str | EngineCall[Any, Any], /, *args: Any, **arguments: Any
    ) -> Any:
        """Return what an operation answers; durable when it does.

        Args:
            entity: one of ours, which asks.
            operation: one that is stated in ``messaging.calls``, or the name of one that is not.
            args: none; arguments are passed by name.
            arguments: of the operation.

        Raises:
            SubletError: the operation refuses.
        """
        assert not args, "arguments are passed by name"
        operation = operation if isinstance(operation, str) else operation.id
        found = self._registry.operations.get(operation)
        if found is not None and found.waits:
            return await run_waiting(found, AskingContext(entity, self), arguments)
        run = partial(self._run, entity=entity, operation=operation, arguments=arguments)
        if found is None or not found.goes_back or arguments.get("after") is not None:
            return await self._call(run)

        def read(engine: Engine) -> tuple[int, Any]:
            return engine.store.last_seq(), run(engine)

        seq, result = await self._call(read)
        while result["next_cursor"] is None and await self._history.reach_back(arguments["room_id"], seq):
            seq, result = await self._call(read)
        return result

    async def on_engine(self, run: Callable[[Engine], ResultT]) -> ResultT:
        """Run something with the engine, on its thread; durable when it is done."""
        return await self._call(run)

    async def operate(self, run: Callable[[OperationParts], ResultT]) -> ResultT:
        """``Surroundings.operate``."""
        return await self._call(lambda engine: run(engine.operating))

    async def ask(self, key: str, payload: bytes) -> list[bytes]:
        """``Surroundings.ask``."""
        return await self._sync.ask(key, payload)

    async def fetch(self, key: str, body: bytes) -> list[bytes]:
        """``Surroundings.fetch``."""
        return await self._sync.fetch(key, body)

    async def make_entity(self, local: str) -> EntityId:
        """``Surroundings.make_entity``."""
        if self._make_entity is None:
            raise SubletError(LocalCode.UNAVAILABLE, "nobody here vouches for another entity", "Use one that is there.")
        entity = await anyio.to_thread.run_sync(self._make_entity, local)
        if all(one.record.entity_id != entity.record.entity_id for one in self._local):
            await self.add(entity)
        return entity.record.entity_id

    async def find_room(self, room_id: RoomId) -> None:
        """Learn of a room from whoever has it, before it is joined or knocked at; see ``looking.find_room``."""
        await find_room(self._call, self._attending.room, self._sync.room, room_id)

    async def watch(
        self, entity: EntityId, since: int | None, wait_seconds: float, room_id: RoomId | None = None
    ) -> EventsFound:
        """Return what has happened; see ``News.watch``."""
        return await self._news.watch(entity, since, wait_seconds, room_id)

    async def take_up(self, entity: EntityId, cursor: int, room_id: RoomId | None = None) -> None:
        """Keep that an entity has received all events up to a cursor; the next ``watch`` without one goes on there.

        Raises:
            SubletError: ``INVALID_ARGUMENT``: there is no such event yet.
        """
        await self._call(lambda engine: take_up(engine, entity, cursor, room_id))

    async def cursor(self) -> int:
        """Return the cursor of the last event."""
        return await self._call(lambda engine: engine.events.cursor)

    async def counts(self) -> dict[str, int]:
        """Return how many updates were accepted, held, doubled, and refused by reason."""
        return await self._call(lambda engine: {str(name): count for name, count in engine.intake.counts.items()})

    def _run(self, engine: Engine, entity: EntityId, operation: str, arguments: dict[str, Any]) -> Any:
        if operation == "message.send" and self._loops is not None:
            arguments = self._loops.admit(engine, entity, arguments)
        return run_operation(self._registry.operations, engine.operating, entity, operation, arguments)

    async def _call(self, run: Callable[[Engine], ResultT]) -> ResultT:
        promise: asyncio.Future[ResultT] = asyncio.get_running_loop().create_future()
        self._owner.call(run, promise)
        try:
            return await promise
        except sqlite3.Error as error:
            raise not_kept(error, self._damaged) from error
        except SubletError:
            await anyio.lowlevel.checkpoint_if_cancelled()  # whoever is ended anyway fails at nothing
            raise

    # What follows begins on the engine's thread or one of the network's, and goes on on the event loop.

    def _make_engine(self) -> Engine:
        engine = self._engine_over(SqliteStore(self._path), self._local)
        engine.events.listeners += [partial(self._loops.told, engine)] if self._loops is not None else []
        engine.events.listeners.append(partial(self._watchers.told, engine))
        engine.events.listeners.append(partial(self._attending.told, engine.keyring))
        engine.staging.arrived.append(lambda came: self._hand_over.soon(self.delivery.arrived, came))
        self.home = engine.keyring.home
        engine.clocks.listeners.append(partial(setattr, self, "ahead_ms"))
        engine.purges.due.append(lambda: self._hand_over.soon(self.erasing.wake))
        engine.documents.lacking.append(lambda _: self._hand_over.soon(self._lacking))
        engine.roots.contradictions.listeners.append(partial(setattr, self, "contradicted"))
        engine.missing.append(lambda name: self._hand_over.soon(self._sync.doubt, WantedDocument(name)))
        keep_agreed(engine, self._agreed)
        engine.here.listeners.append(lambda room_id: self._hand_over.soon(self._attending.room, room_id))
        engine.here.listeners.append(lambda room_id: self._hand_over.soon(self.devices.offer, room_id))
        return engine

    def _trial(self) -> Engine:
        return self._engine_over(SqliteStore(None), self._local)

    def _stranger(self) -> Engine:  # whose clients are nobody's
        return self._engine_over(SqliteStore(None), [one.with_another_client() for one in self._local])

    def _engine_over(self, store: SqliteStore, local: list[LocalEntity]) -> Engine:
        blobs = FileBlobs(self._path.with_name("blobs"), MAX_BLOBS_BYTES)
        return Engine(self._registry, store, local, self._now_ms, blobs, self._daemon_bytes)

    def _answer(self, engine: Engine, query: PeerQuery) -> Reply | None:
        """Answer a peer who may be told; where its state vector shows that it has more than we, ask it in turn."""
        question = self._doorkeeper.admit(engine, query)
        body = query.payload if question is None else question.body
        if query.key.endswith("/state"):
            name = query.key.removesuffix("/state")
            if answers.behind(engine, name, decode_vector(body or b"\0")):
                self._hand_over.soon(self._sync.doubt, WantedDocument(name))
        if question is not None and (room_id := differs_at_asker(engine, query.key, body)) is not None:
            self._hand_over.soon(self._sync.differs, room_id)
        found = self.delivery.answer(engine, query.key, body) or answers.answer(engine, query.key, body)
        if found is None or question is None:
            return None if found is None else Reply("", found)
        sealed = seal_answer(question, found, in_steps=hides_length(engine, query.key))
        return Reply(engine.keyring.home(question.asker), sealed)

    def _outcome(self, outcome: ArrivalReport) -> None:
        for name in outcome.gaps:
            self._hand_over.soon(self._sync.doubt, WantedDocument(name))
        for entity in outcome.unknown_signers:
            self._hand_over.soon(self._sync.doubt, WantedKey(entity))

    async def _begin(self) -> None:
        """Let our entities be reached; rooms are attended to from then on, one after the other, however many."""
        self._tokens.begin(self._attending.ask_for)
        await self._catching_up.begin()
        await self._attending.begin(self._own())
        self._network.on_change(lambda: self._hand_over.soon(self._catching_up.link_changed))
        self._hand_over.soon(self._catching_up.link_changed)

    def _own(self) -> list[EntityId]:
        return [entity.record.entity_id for entity in self._local]

    def _end(self) -> None:
        self._owner.stop()
        self._network.close()

    def _recovered(self) -> None:
        """Ask again for what was not asked of a peer while it gave no good answers."""
        self._hand_over.soon(self._catching_up.everything)

    async def _known(self, entity: EntityId) -> None:
        await self._attending.known(entity)

    async def _enter(self, room_id: RoomId) -> None:
        await self._attending.room(room_id)
        await self.delivery.say_here(room_id)

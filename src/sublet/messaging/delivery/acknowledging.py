"""Acknowledges what comes from others, and asks what became of what went to them; on the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Protocol

import anyio
import structlog

from sublet.messaging.delivery import acknowledged
from sublet.messaging.delivery.acknowledged import AcknowledgedParts
from sublet.messaging.delivery.heard import AcknowledgementQueue
from sublet.messaging.engine.calling import CallEngine
from sublet.messaging.identities.epochs import Epochs
from sublet.messaging.ports.outbox import Outbox, Outgoing
from sublet.messaging.rooms.audience import Audience
from sublet.messaging.schema.datatypes import QOS_LOW
from sublet.messaging.syncing.asking import Answer, Asking
from sublet.messaging.syncing.doorkeeper import DoorParts, RoomQuestion, ask
from sublet.messaging.syncing.wanted import WantedDocument
from sublet.protocol.ezagent.acknowledgement import MAX_CLIENTS, MAX_SHARDS, Acknowledgement, Clocks
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import RoomId
from sublet.protocol.ezagent.keys import doc_id
from sublet.tasks import start_alone

log = structlog.get_logger(__name__)

GATHER_SECONDS: Final = 0.1
"""For how long what arrives is gathered, so that a flood is acknowledged in few statements."""
LATE_SECONDS: Final = 0.5
"""After which what others hold and we lack is no longer on its way from its writer, who may have no link to us."""
HEARD_A_TURN: Final = 256
"""Acknowledgements of others that are taken before our own statements and questions have their turn."""
MAX_ARRIVED: Final = 65_536
"""Clients whose writes wait to be acknowledged; their writers ask for what is beyond."""
MAX_AHEAD: Final = 64
"""Documents of which others hold more, at a time; what is beyond is asked for with everything else."""
MAX_AHEAD_CLOCKS: Final = 16_384
"""Of all those documents."""


class AcknowledgingParts(AcknowledgedParts, DoorParts, Protocol):
    """The parts of the engine for acknowledging."""

    @property
    def audience(self) -> Audience: ...

    @property
    def epochs(self) -> Epochs: ...

    @property
    def outbox(self) -> Outbox: ...


class Acknowledging:
    """Statements of our own, and those of others.

    Args:
        asking: asks the others.
        call: runs something with the engine.
        news: told when somebody acknowledges something of ours.
        behind: told of documents of which others hold more than we do.
        soon: has something done on the event loop, from any thread.
    """

    def __init__(
        self,
        asking: Asking,
        call: CallEngine,
        news: Callable[[], None],
        behind: Callable[[WantedDocument], None],
        soon: Callable[..., None],
    ) -> None:
        self._questions = asking
        self._call = call
        self._news = news
        self._behind = behind
        self._soon = soon
        self._arrived: dict[RoomId, dict[str, dict[int, int]]] = {}
        self._arrived_clients = 0
        self._heard = AcknowledgementQueue()
        self._wanted: dict[RoomId, None] = {}
        self._asking: set[RoomId] = set()
        self._ahead: dict[str, Mapping[int, int]] = {}
        self._ready = anyio.Event()
        self._others_ahead = anyio.Event()

    def arrived(self, room_id: RoomId, shard: str, client: int) -> None:
        """Note that something of somebody else has become durable here."""
        if self._arrived_clients >= MAX_ARRIVED:
            return  # whoever misses it asks
        shards = self._arrived.setdefault(room_id, {})
        clients = shards.setdefault(shard, {})
        self._arrived_clients += client not in clients
        clients[client] = 0
        if len(shards) > MAX_SHARDS or len(clients) > MAX_CLIENTS:  # as above
            del shards[shard]
            self._arrived_clients -= len(clients)
        self._ready.set()

    def heard(self, room_id: RoomId, raw: bytes) -> None:
        """Take an acknowledgement that somebody has published; any thread may call.

        Rooms whose acknowledgements find no room are asked again.
        """
        if self._heard.add(room_id, raw):
            self._soon(self._wake)

    def _wake(self) -> None:
        self._ready.set()

    async def say_here(self, room_id: RoomId) -> None:
        """Let those who are in a room know that ours are there, and which devices they have; who misses it asks."""
        await self._publish(room_id, {})

    def want(self, room_id: RoomId) -> None:
        """Ask the others of a room soon for what they have not acknowledged yet."""
        self._wanted[room_id] = None
        self._ready.set()

    async def run(self) -> None:
        """Acknowledge what arrives, take what others acknowledge and ask them, until cancelled."""
        async with anyio.create_task_group() as group:
            group.start_soon(self._notice_late)
            while True:
                await self._ready.wait()
                await anyio.sleep(GATHER_SECONDS)
                self._ready = anyio.Event()
                arrived, self._arrived, self._arrived_clients = self._arrived, {}, 0
                for room_id, shards in arrived.items():
                    await self._safely(partial(self._publish, room_id, shards))
                for _ in range(HEARD_A_TURN):
                    heard = self._heard.take()
                    if heard is None:
                        break
                    await self._safely(partial(self._hear, *heard))
                if self._heard:
                    self._ready.set()
                for room_id in self._heard.missed():
                    self.want(room_id)
                for room_id in [one for one in self._wanted if one not in self._asking]:
                    del self._wanted[room_id]
                    self._asking.add(room_id)
                    start_alone(group, "asking for acknowledgements", self._ask_once, room_id)

    async def _notice_late(self) -> None:
        while True:
            await self._others_ahead.wait()
            await anyio.sleep(LATE_SECONDS)
            ahead, self._ahead, self._others_ahead = self._ahead, {}, anyio.Event()
            await self._safely(partial(self._ask_for_late, ahead))

    async def _ask_for_late(self, ahead: Clocks) -> None:
        for name in await self._call(partial(acknowledged.behind_of, held=ahead)):
            self._behind(WantedDocument(name))

    async def _safely(self, run: Callable[[], Awaitable[object]]) -> None:
        try:
            await run()
        except Refused as refused:
            log.info("a peer gave a bad acknowledgement", reason=refused.refusal)
        except Exception:
            log.exception("an acknowledgement failed, which is asked for again")

    async def _publish(self, room_id: RoomId, shards: dict[str, dict[int, int]]) -> None:
        await self._call(partial(_acknowledge, room_id=room_id, shards=shards))

    async def _ask_once(self, room_id: RoomId) -> None:
        """Ask a room's members. A room has one question at a time, however often somebody gives cause for one."""
        try:
            await self._safely(partial(self._ask, room_id))
        finally:
            self._asking.discard(room_id)
            if room_id in self._wanted:
                self._ready.set()

    async def _ask(self, room_id: RoomId) -> None:
        asked = await self._call(partial(_question, room_id=room_id))
        if asked is None:
            return
        question, daemons = asked
        late = partial(self._take_answer, room_id)
        key = doc_id("delivery", room_id=room_id)
        for answer in await self._questions.ask(key, question.payload, daemons, question.opened, late):
            await late(answer)

    async def _take_answer(self, room_id: RoomId, answer: Answer[bytes]) -> None:
        await self._safely(partial(self._take, room_id, answer.said))

    async def _hear(self, room_id: RoomId, raw: bytes) -> None:
        opened = await self._call(lambda engine: engine.carrying.opened_bundle(raw))
        if (await self._take(room_id, opened)).unknown:
            self.want(room_id)  # answers prove who their signers are

    async def _take(self, room_id: RoomId, raw: bytes) -> acknowledged.Taken:
        taken = await self._call(partial(acknowledged.take, room_id=room_id, raw=raw))
        if taken.news:
            self._news()
        clocks = sum(map(len, self._ahead.values()))
        for name, vector in taken.ahead.items():
            clocks += len(vector)
            if len(self._ahead) >= MAX_AHEAD or clocks > MAX_AHEAD_CLOCKS:
                break
            self._ahead[name] = vector
        if self._ahead:
            self._others_ahead.set()
        return taken


def _question(engine: AcknowledgingParts, room_id: RoomId) -> tuple[RoomQuestion, frozenset[str] | None] | None:
    """Return a question for what is not acknowledged, and the daemons that may answer it; None where all is."""
    unacknowledged = acknowledged.question(engine, room_id)
    if not unacknowledged and not acknowledged.is_awaited(engine, room_id):
        return None
    key = doc_id("delivery", room_id=room_id)
    question = ask(engine, key, Acknowledgement(engine.epochs.own, unacknowledged).encode())
    return None if question is None else (question, engine.audience.answers(key, b""))


def _acknowledge(engine: AcknowledgingParts, room_id: RoomId, shards: dict[str, dict[int, int]]) -> None:
    envelopes = acknowledged.acknowledge(engine, room_id, shards)
    if envelopes:
        key = doc_id("delivery", room_id=room_id)
        records = acknowledged.records_with_devices(engine, room_id) if not shards else ()
        engine.outbox.put(Outgoing(key, acknowledged.bundle_of(envelopes, records), b"", QOS_LOW))

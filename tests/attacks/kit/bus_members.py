"""Daemons' messaging on real buses in one process, and paired daemons that mean harm in the place of others.

Each has links by its own identity key, as a daemon has. Whoever means harm has a real link and says what it likes
over it: it takes questions and answers none, answers with junk, listens to everything, or reads nothing.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attacks.kit.neighbour import HOST, public
from sublet.messaging.backends.zenoh_network import Endpoints, ZenohNetwork
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.identities.keyring import LocalEntity
from sublet.messaging.links.keys import LinkKeys
from sublet.messaging.links.links import Links
from sublet.messaging.ports.network import PeerQuery, Sample
from sublet.messaging.service import MessagingService
from sublet.protocol import ids
from sublet.protocol.errors import SubletError
from support.consents import TakesAll
from support.noise import noise
from support.rooms import daemon_key, local_entity

SECONDS = 60
JUNK_BYTES = 256


class OnBus:
    """Links of a daemon with Zenoh behind them.

    Args:
        name: of the daemon's one entity, which decides its key.
        place: holds its files and sockets.
        number: of the process, among those of one test.
    """

    def __init__(self, name: str, place: Path, number: int) -> None:
        self.name = name
        self.entity: LocalEntity = local_entity(name, number)
        self.id = self.entity.record.entity_id
        self.key = public(Ed25519PrivateKey.from_private_bytes(bytes(daemon_key(name))))
        self.node = ids.node_id(self.key)
        keys = LinkKeys(place / name / "keys", Ed25519PrivateKey.from_private_bytes(bytes(daemon_key(name))))
        with socket.create_server((HOST, 0)) as listener:
            self.port = int(listener.getsockname()[1])
            self.links = Links(keys, place / name / "s", listener)
        self.network = ZenohNetwork(Endpoints())
        self._others: list[OnBus] = []

    def pair(self, others: Iterable[OnBus]) -> None:
        """Have links with these alone; of two the one with the smaller node id calls. Blocks."""
        self._others = list(others)
        self.links.trust([other.key for other in self._others])
        called = self.links.call({one.key: [(HOST, one.port)] for one in self._others if self.node < one.node})
        self.network.join(
            {
                one.node: Endpoints((self.links.inbound(one.key),), (called[one.key],) if one.key in called else ())
                for one in self._others
            }
        )

    async def is_heard_by(self, other: OnBus, key: str) -> None:
        """Wait until what is published under a key goes to another one, whose subscription takes its time to come."""
        session = self.network._links[other.node].session
        assert session is not None
        publisher = session.declare_publisher(key)
        with anyio.fail_after(SECONDS):
            while not publisher.matching_status.matching:  # type: ignore[attr-defined]
                await anyio.sleep(0.02)
        publisher.undeclare()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """End all links."""
        self.network.close()
        self.links.close()


class BusMember(OnBus):
    """A daemon's messaging with one entity."""

    def __init__(self, name: str, place: Path, number: int) -> None:
        super().__init__(name, place, number)
        self.service = MessagingService(
            place / name / "rooms.db",
            Registry(BUILT_INS),
            self.network,
            [self.entity],
            lambda: time.time_ns() // 1_000_000,
            lambda _: True,
            consent=TakesAll(),
        )
        self.bus = self.service.bus(self.id)

    async def bodies(self, room: str) -> list[str | None]:
        """Return the bodies of a room's last messages; none where it is not known."""
        try:
            page = await self.bus.timeline.list(room_id=room, limit=200, peek=True)
        except SubletError:
            return []
        return [ref.get("body") for ref in page["refs"]]

    async def shows(self, room: str, wanted: list[str]) -> None:
        """Wait until a room shows these messages, by what comes and is asked for anyway."""
        with anyio.fail_after(SECONDS):
            while await self.bodies(room) != wanted:
                await anyio.sleep(0.02)


class Villain(OnBus):
    """A paired daemon that means harm, without any messaging of its own."""

    def __init__(self, name: str, place: Path, number: int) -> None:
        super().__init__(name, place, number)
        self.heard: list[Sample] = []
        self.asked = Counter[str]()
        self.held: list[PeerQuery] = []

    def listens(self) -> None:
        """Hear all that others publish."""
        self.network.subscribe("ezagent/**", self.heard.append)

    def answers(self, answer: Callable[[PeerQuery], None], *keys: str) -> None:
        """Answer all questions under wildcards, and under these keys, in some way."""

        def asked(query: PeerQuery) -> None:
            self.asked[query.key] += 1
            answer(query)

        for key in ("ezagent/**", *keys):
            self.network.serve(key, asked)

    def is_silent(self, *keys: str) -> None:
        """Take questions and answer none."""
        self.answers(self.held.append, *keys)

    def talks_junk(self, *keys: str) -> None:
        """Answer each question with bytes that say nothing."""
        self.answers(lambda query: query.reply(noise(JUNK_BYTES)), *keys)

    def gives_up(self) -> None:
        """Let go of the questions that are held."""
        while self.held:
            self.held.pop().drop()


@asynccontextmanager
async def on_bus(*daemons: OnBus) -> AsyncIterator[None]:
    """Pair all of these with each other, and run them until the block ends."""
    async with anyio.create_task_group() as group:
        for one in daemons:
            await anyio.to_thread.run_sync(one.pair, [other for other in daemons if other is not one])
        stop, started = anyio.Event(), [anyio.Event() for _ in daemons]

        async def run(member: BusMember, ready: anyio.Event) -> None:
            async with member.service.running():
                ready.set()
                await stop.wait()

        for one, ready in zip(daemons, started, strict=True):
            if isinstance(one, BusMember):
                group.start_soon(run, one, ready)
            else:
                ready.set()
        for ready in started:
            await ready.wait()
        with anyio.fail_after(SECONDS):
            while any(len(one.network.linked()) < len(daemons) - 1 for one in daemons):
                await anyio.sleep(0.02)
        try:
            yield
        finally:
            stop.set()
            for one in daemons:
                if isinstance(one, Villain):
                    one.gives_up()
                    await anyio.to_thread.run_sync(one.close)
    for one in daemons:
        if not isinstance(one, Villain):
            await anyio.to_thread.run_sync(one.links.close)


async def room_of(first: BusMember, *others: OnBus) -> str:
    """Return a room of these, made by the first, once all that have messaging have it."""
    for other in others:
        await first.service.on_engine(
            partial(lambda engine, raw: engine.intake.learn(raw), raw=other.entity.record.encode())
        )
    room: str = (await first.bus.room.create(name="r", invite=[other.id for other in others]))["room_id"]
    for other in others:
        if isinstance(other, BusMember):
            with anyio.fail_after(SECONDS):
                while not await other.bus.room.list():
                    await anyio.sleep(0.02)
    return room


def blocked(run: Callable[[], None]) -> threading.Thread:
    """Return a thread that runs something that may block."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread

"""What a start costs does not follow how much was ever said: counted in what SQLite does, and in documents opened."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.ports.network import Sample
from sublet.messaging.service import MessagingService
from support.consents import TakesAll
from support.members import SECONDS, member
from support.memory_network import MemoryHub, MemoryNetwork
from support.rooms import Clock, Peer, local_entity, shared_room

pytestmark = pytest.mark.anyio

MONTH_MS = 31 * 86_400_000
EVERY = 20
"""Steps of SQLite's machine between two looks: a row that is read takes some."""


SHARD = 64
ROOMS = ((1, 96), (8, 224))
"""Months, and messages in each of them: the larger room has 28 shards where the smaller one has 2."""
LOOK_STEPS = 30
"""For one look into each shard, for its newest message."""


@dataclass
class Counted:
    """What a database has done since it was opened."""

    steps: int = 0
    statements: int = 0

    def step(self) -> int:
        self.steps += EVERY
        return 0

    def begin(self, _: str) -> None:
        self.statements += 1


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    """Return what each database that is opened does, in the order of opening."""
    found: list[Counted] = []
    connect = sqlite3.connect

    def connecting(*arguments: object, **options: object) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)  # type: ignore[call-overload]
        count = Counted()
        found.append(count)
        connection.set_progress_handler(count.step, EVERY)
        connection.set_trace_callback(count.begin)
        return connection

    monkeypatch.setattr("sublet.messaging.backends.sqlite_file.sqlite3.connect", connecting)
    return found


def written(path: Path, months: int, messages: int) -> None:
    """Make a database with a room in which so much was said in each of the last months."""
    declarations, now_ms = (*BUILT_INS, *EXTENSIONS), time.time_ns() // 1_000_000
    alice = Peer("alice", 1, path / "alice.db", declarations, Clock(now_ms - (months - 1) * MONTH_MS))
    bob = Peer("bob", 2, None, declarations, alice.clock)
    alice.meet(bob)
    room = shared_room(alice, bob)
    for month in range(months):
        for number in range(messages):
            run_operation(
                alice.engine.registry.operations,
                alice.engine.operating,
                alice.id,
                "message.send",
                {"room_id": room, "body": f"{month} {number}"},
            )
            if number % 100 == 99:
                alice.engine.commit()
        alice.engine.commit()
        alice.clock.now_ms = now_ms - (months - 2 - month) * MONTH_MS
    alice.store.close()


async def test_a_start_reads_as_much_of_a_large_room_as_of_a_small_one(
    tmp_path: Path, counted: list[Counted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublet.messaging.opening.shards.REFS_PER_SHARD", SHARD)
    # What goes on beside comes at no moment that could be told: what is asked of others, of two months alone at that,
    # what is looked at and what is erased.
    monkeypatch.setattr(MessagingService, "_start", lambda *_: None)
    starts: list[Counted] = []
    firsts: list[Counted] = []
    for number, (months, messages) in enumerate((ROOMS[0], *ROOMS)):
        (path := tmp_path / f"{number}").mkdir()
        written(path, months, messages)
        counted.clear()
        async with member("alice", 3, MemoryHub(), path, more=EXTENSIONS) as alice:
            (database,) = counted
            starts.append(replace(database))
            (room,) = await alice.bus.room.list()
            page = await alice.bus.timeline.list(room_id=room["room_id"], limit=20, peek=True)
            assert len(page["refs"]) == 20
            await alice.bus.message.send(room_id=room["room_id"], body="more")
            firsts.append(replace(database))
    shards, more = (-(-messages // SHARD) * months for months, messages in ROOMS)
    looks = LOOK_STEPS * (more - shards)
    for (_, small, large), beside in ((starts, 0), (firsts, looks)):  # the first one warms up what a process does once
        assert large.statements <= small.statements + 10
        assert large.steps - beside < 1.5 * small.steps


class SlowNetwork(MemoryNetwork):
    """A network on which hearing a room takes until ``ready`` is set."""

    def __init__(self, hub: MemoryHub, number: int) -> None:
        super().__init__(hub, number)
        self.ready = Event()
        self.in_vain = False

    def subscribe(self, key: str, callback: Callable[[Sample], None]) -> Callable[[], None]:
        if "/config/" in key:
            self.in_vain |= not self.ready.wait(SECONDS)
        return super().subscribe(key, callback)


async def test_what_is_here_can_be_read_before_all_rooms_are_heard(tmp_path: Path) -> None:
    async with member("alice", 1, MemoryHub(), tmp_path) as alice:
        rooms = {(await alice.bus.room.create(name=f"r{number}"))["room_id"] for number in range(3)}
    network = SlowNetwork(MemoryHub(), 0)
    service = MessagingService(
        tmp_path / "alice.db",
        Registry(BUILT_INS),
        network,
        [local_entity("alice", 2)],
        lambda: time.time_ns() // 1_000_000,
        lambda _: True,
        consent=TakesAll(),
    )
    async with service.running():
        assert {room["room_id"] for room in await service.bus(alice.id).room.list()} == rooms
        network.ready.set()
    assert not network.in_vain

"""Months before those that are heard: asked for when somebody reads so far back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.bus import Bus
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.ports.network import PeerQuery
from sublet.messaging.service import MessagingService
from support.consents import TakesAll
from support.memory_network import MemoryHub
from support.rooms import NOW_MS, Clock, local_entity

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000
SECONDS = 30


@asynccontextmanager
async def member(name: str, hub: MemoryHub, path: Path, clock: Clock) -> AsyncIterator[tuple[str, Bus]]:
    entity = local_entity(name, len(name))
    service = MessagingService(
        path / f"{name}.db", Registry(BUILT_INS), hub.join(), [entity], clock, lambda _: True, consent=TakesAll()
    )
    async with service.running():
        yield entity.record.entity_id, service.bus(entity.record.entity_id)


async def read_back(bus: Bus, room: str, limit: int) -> list[str]:
    """Return all bodies, read by pages from the last one on."""
    found: list[str] = []
    before: str | None = None
    while True:
        page = await bus.timeline.list(room_id=room, limit=limit, before=before)
        found = [ref["body"] for ref in page["refs"]] + found
        before = page["next_cursor"]
        if before is None:
            return found


@pytest.mark.parametrize("limit", [2, 50])
async def test_who_joins_later_reads_back_to_the_beginning(tmp_path: Path, limit: int) -> None:
    hub, clock = MemoryHub(), Clock(NOW_MS - 400 * DAY_MS)
    async with member("alice", hub, tmp_path, clock) as (_, alice):
        room = (await alice.room.create(name="r"))["room_id"]
        said: list[str] = []
        for days in (0, 0, 45, 200, 155):
            clock.now_ms += days * DAY_MS
            said.append(f"message {len(said)}")
            await alice.message.send(room_id=room, body=said[-1])
        async with member("bob", hub, tmp_path, clock) as (him, bob):
            await alice.room.invite(room_id=room, entity=him)
            with anyio.fail_after(SECONDS):
                while not await bob.room.list():
                    await anyio.sleep(0.02)
                while said[-1] not in [ref["body"] for ref in (await bob.timeline.list(room_id=room, limit=1))["refs"]]:
                    await anyio.sleep(0.02)
            assert await read_back(bob, room, limit) == said


async def test_nobody_is_asked_twice_in_a_row(tmp_path: Path) -> None:
    hub, clock = MemoryHub(), Clock(NOW_MS - 400 * DAY_MS)
    async with member("alice", hub, tmp_path, clock) as (_, alice):
        room = (await alice.room.create(name="r"))["room_id"]
        await alice.message.send(room_id=room, body="first")
        clock.now_ms = NOW_MS
        asked: list[str] = []

        def asks(query: PeerQuery) -> None:
            asked.append(query.key)
            query.drop()

        hub.join().serve(f"ezagent/{room}/index/*/state", asks)
        assert await read_back(alice, room, 50) == ["first"]
        once = [key for key in asked if "/index/2025-" in key]
        assert once
        assert await read_back(alice, room, 50) == ["first"]
        assert [key for key in asked if "/index/2025-" in key] == once

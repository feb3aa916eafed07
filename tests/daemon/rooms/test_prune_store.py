"""Which rooms of delegations are over, and how many of them are kept."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from sublet.daemon.config.config_file import MessagingConfig
from sublet.daemon.rooms import prune_store
from sublet.daemon.rooms.bus_port import BusPort
from sublet.daemon.rooms.entities import daemon_of, human_of
from sublet.daemon.rooms.lent_rooms import CLOSED_LEVEL
from sublet.daemon.rooms.messaging import Messaging
from sublet.daemon.rooms.prune_store import LeaseRooms
from sublet.messaging.service import MessagingService
from sublet.tasks import Service, Services
from support.pairing import side
from support.rooms import ANY_BUS

pytestmark = pytest.mark.anyio
DELEGATION = "dlg_" + "0" * 32


@dataclass
class World:
    """A lender with rooms that it opens by hand."""

    service: MessagingService
    node: str
    used: set[str]
    store: LeaseRooms

    async def room(self, name: str, *, closed: bool = True, creator: str | None = None) -> str:
        me = creator or daemon_of(self.node)
        made = await self.service.call(me, "room.create", name=name, invite=[daemon_of(self.node)])
        await self.service.call(me, "message.send", room_id=made["room_id"], body="it is over")
        if closed:
            changes = {"power_levels.events_default": CLOSED_LEVEL}
            await self.service.call(me, "room.update_config", room_id=made["room_id"], changes=changes)
        return str(made["room_id"])

    async def rooms(self) -> list[str]:
        return [one["room_id"] for one in await self.service.call(daemon_of(self.node), "room.list")]


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    port = BusPort(ANY_BUS, None)
    try:
        async with side(directory, 1) as half, anyio.create_task_group() as group:
            messaging = Messaging(half.identity, directory, port, half.peers, half.link, MessagingConfig())
            used: set[str] = set()
            store = LeaseRooms(messaging, half.identity.node_id, lambda: used)
            assert await store.candidates() == [], "nothing runs for it"
            assert await store.trim() == 0
            Services().start(group, Service("rooms", messaging.serve, messaging.wanted))
            yield World(await messaging.use(), half.identity.node_id, used, store)
            group.cancel_scope.cancel()
    finally:
        port.close()


async def test_only_rooms_that_a_daemon_has_closed_are_over_and_go_with_their_delegation(tmp_path: Path) -> None:
    async with world(tmp_path) as at:
        over = await at.room(f"Delegation {DELEGATION}: Mend it")
        attended = await at.room("Delegation: attended to")
        at.used.add(attended)
        kept = [
            attended,
            await at.room("Delegation: at work", closed=False),
            await at.room("of people", creator=human_of(at.node)),
        ]
        (one,) = await at.store.candidates()
        assert (one.id, one.serves) == (over, frozenset([DELEGATION]))
        assert one.bytes > 500
        assert "Mend it" in one.shown
        at.used.add(over)
        assert await at.store.remove([one]) == [], "somebody attends to it by now"
        at.used.remove(over)
        assert await at.store.remove([one]) == [one]
        assert set(await at.rooms()) == set(kept)


async def test_the_oldest_beyond_so_many_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune_store, "MAX_KEPT", 2)
    async with world(tmp_path) as at:
        rooms = [await at.room(f"Delegation: {number}") for number in range(4)]
        running = await at.room("Delegation: at work", closed=False)
        assert await at.store.trim() == 2
        assert set(await at.rooms()) == {*sorted(rooms)[2:], running}
        assert await at.store.trim() == 0

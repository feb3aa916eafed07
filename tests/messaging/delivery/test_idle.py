"""C31: who was away finds first what came meanwhile, once; looking takes nothing, and a lost answer loses nothing."""

from __future__ import annotations

from pathlib import Path
from random import Random

import anyio
import pytest

from sublet.messaging.delivery.delivery import Delivery
from sublet.messaging.delivery.receipts import Receipt
from sublet.messaging.extensions.read_receipts import RECEIPTS
from sublet.protocol.errors import SubletError
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub

pytestmark = pytest.mark.anyio
MORE = (RECEIPTS,)


async def news(reader: Member, wait: float = 0.0, room: str | None = None) -> tuple[list[str], int]:
    found = await reader.service.watch(reader.id, None, wait, room)
    return [event["ref_id"] for event in found["events"] if event["kind"] == "message.new"], found["cursor"]


async def until_here(reader: Member, room: str, count: int) -> None:
    await reader.until(room, lambda bodies: len(bodies) >= count)


async def test_what_came_while_nobody_watched_comes_first_and_once(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=MORE) as alice:
        async with member("bob", 2, hub, tmp_path, more=MORE) as bob:
            room = await room_of(alice, bob)
            refs = [(await alice.bus.message.send(room_id=room, body=str(n)))["ref_id"] for n in range(3)]
            await until_here(bob, room, 3)
            assert (await news(bob))[0] == refs
            found, cursor = await news(bob)
            assert found == refs, "looking takes nothing"
            await bob.service.take_up(bob.id, cursor)
            assert (await news(bob))[0] == []
            with pytest.raises(SubletError, match="no event"):
                await bob.service.take_up(bob.id, cursor + 100)
        refs = [(await alice.bus.message.send(room_id=room, body=str(n)))["ref_id"] for n in range(3, 5)]
        async with member("bob", 3, hub, tmp_path, more=MORE) as bob:
            await until_here(bob, room, 5)
            assert (await news(bob))[0] == refs
            await bob.bus.message.send(room_id=room, body="mine")
            assert (await news(bob))[0] == refs, "nobody's own messages are news"


async def test_a_room_is_taken_up_without_the_others(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=MORE) as alice, member("bob", 2, hub, tmp_path, more=MORE) as bob:
        first = await room_of(alice, bob)
        second = (await alice.bus.room.create(name="s", invite=[bob.id]))["room_id"]
        await bob.service.find_room(second)
        here = (await alice.bus.message.send(room_id=first, body="a"))["ref_id"]
        there = (await alice.bus.message.send(room_id=second, body="b"))["ref_id"]
        await until_here(bob, first, 1)
        await until_here(bob, second, 1)
        found, cursor = await news(bob, room=first)
        assert found == [here]
        await bob.service.take_up(bob.id, cursor, first)
        assert (await news(bob))[0] == [there]
        assert (await news(bob, room=first))[0] == []


async def test_each_message_is_delivered_once_however_it_falls_into_the_watching(tmp_path: Path) -> None:
    """Bob watches, is idle, loses answers; Alice sends all the while: what he acknowledges is each message once."""
    hub, random, count = MemoryHub(), Random(31), 120
    got: list[str] = []
    async with member("alice", 1, hub, tmp_path, more=MORE) as alice, member("bob", 2, hub, tmp_path, more=MORE) as bob:
        room = await room_of(alice, bob)
        sent: list[str] = []

        async def send() -> None:
            for number in range(count):
                sent.append((await alice.bus.message.send(room_id=room, body=str(number)))["ref_id"])
                if random.random() < 0.3:
                    await anyio.lowlevel.checkpoint()

        async with anyio.create_task_group() as group:
            group.start_soon(send)
            with anyio.fail_after(SECONDS):
                while len(got) < count:
                    if random.random() < 0.2:
                        with anyio.move_on_after(random.random() / 50):  # its answer is lost, or it never waits
                            await news(bob, wait=5.0)
                        continue
                    found, cursor = await news(bob, wait=5.0)
                    got += found
                    await bob.service.take_up(bob.id, cursor)
        assert got == sent
        assert (await news(bob))[0] == []


async def test_receipts_between_services_go_from_queued_to_read(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=MORE) as alice:
        async with member("bob", 2, hub, tmp_path, more=MORE) as bob:
            room = await room_of(alice, bob)
            ref = (await alice.bus.message.send(room_id=room, body="hello"))["ref_id"]
            found = await alice.service.delivery.receipts(alice.id, room, ref, Receipt.DELIVERED, SECONDS)
            assert [one.receipt for one in found.recipients] == [Receipt.DELIVERED]
            _, cursor = await news(bob)
            await bob.service.take_up(bob.id, cursor)
            found = await alice.service.delivery.receipts(alice.id, room, ref, Receipt.READ, SECONDS)
            assert found.receipt is Receipt.READ
        away = (await alice.bus.message.send(room_id=room, body="while away"))["ref_id"]
        assert (await alice.service.delivery.receipts(alice.id, room, away)).receipt is Receipt.QUEUED
        async with member("bob", 3, hub, tmp_path, more=MORE) as bob:
            found = await alice.service.delivery.receipts(alice.id, room, away, Receipt.DELIVERED, SECONDS)
            assert found.receipt is Receipt.DELIVERED


async def test_what_was_acknowledged_while_the_sender_was_away_is_asked_for(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("bob", 2, hub, tmp_path, more=MORE) as bob:
        async with member("alice", 1, hub, tmp_path, more=MORE) as alice:
            room = await room_of(alice, bob)
            hub.cut(alice.network, bob.network)
            ref = (await alice.bus.message.send(room_id=room, body="hello"))["ref_id"]
        async with member("alice", 3, hub, tmp_path, more=MORE) as alice:
            await until_here(bob, room, 1)
            found = await alice.service.delivery.receipts(alice.id, room, ref, Receipt.DELIVERED, SECONDS)
            assert found.receipt is Receipt.DELIVERED


async def test_an_acknowledgement_that_got_lost_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Delivery, "heard", lambda *_: None)
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path, more=MORE) as alice, member("bob", 2, hub, tmp_path, more=MORE) as bob:
        room = await room_of(alice, bob)
        ref = (await alice.bus.message.send(room_id=room, body="hello"))["ref_id"]
        await until_here(bob, room, 1)
        alice.service.delivery.want(room)
        found = await alice.service.delivery.receipts(alice.id, room, ref, Receipt.DELIVERED, SECONDS)
        assert found.receipt is Receipt.DELIVERED

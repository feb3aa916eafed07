"""What a member does who wants the others to see less of each other: running services on a network in memory."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest

from messaging.quotas.test_quotas import Writer
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.quotas import quotas
from sublet.messaging.schema.datatypes import QOS_DATA
from sublet.messaging.syncing import sync
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from support.members import SECONDS, Member, member, room_of
from support.memory_network import MemoryHub
from support.rooms import Peer

pytestmark = pytest.mark.anyio


async def flood(member: Member, writer: Writer, count: int, size: int) -> None:
    """Let one member alone hear many messages."""
    arrivals = [Arrival(writer.next(size)) for _ in range(count)]
    outcome = await member.service.on_engine(lambda engine: engine.intake.take(arrivals))
    assert outcome.accepted == count


@pytest.mark.parametrize(("count", "size"), [(quotas.MAX_STRANGER_UPDATES + 50, 10), (12, 100_000)])
async def test_whoever_floods_one_member_before_they_are_removed_shuts_nobody_out(
    tmp_path: Path, count: int, size: int
) -> None:
    hub = MemoryHub()
    eve = Peer("eve", 9)
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        for one in (alice, bob):
            await one.service.on_engine(lambda engine: engine.intake.learn(eve.entity.record.encode()))
        await alice.bus.room.invite(room_id=room, entity=eve.id)
        await bob.service.asking.room(room)
        hub.cut(alice.network, bob.network)
        await flood(bob, Writer(eve, room), count, size)
        await bob.bus.message.send(room_id=room, body="behind all of that")
        await alice.bus.room.kick(room_id=room, entity=eve.id)
        await alice.bus.message.send(room_id=room, body="eve is gone")
        hub.heal()
        for one in (alice, bob):
            await one.until(room, lambda bodies: set(bodies) == {"behind all of that", "eve is gone"})
        assert await alice.bodies(room) == await bob.bodies(room)


async def test_what_was_refused_for_its_size_holds_nothing_back_and_is_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "MAX_STRANGER_UPDATES", 4)
    monkeypatch.setattr("sublet.messaging.syncing.answers.MAX_ANSWER_BYTES", 2_000)
    hub = MemoryHub()
    eve = Peer("eve", 9)
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        for one in (alice, bob):
            await one.service.on_engine(lambda engine: engine.intake.learn(eve.entity.record.encode()))
        await alice.bus.room.invite(room_id=room, entity=eve.id)
        await bob.service.asking.room(room)
        await alice.bus.message.send(room_id=room, body="first")
        await bob.until(room, lambda bodies: bodies == ["first"])
        hub.cut(alice.network, bob.network)
        await bob.bus.message.send(room_id=room, body="before")  # what comes next stands beside this one
        await flood(bob, Writer(eve, room), 60, 300)
        await alice.bus.room.kick(room_id=room, entity=eve.id)
        hub.heal()
        await alice.until(room, lambda bodies: "before" in bodies)
        for _ in range(3):
            await alice.service.asking.room(room)
        refused = (await alice.service.counts())["quota"]
        await alice.service.asking.room(room)
        assert (await alice.service.counts())["quota"] == refused
        await alice.bus.room.invite(room_id=room, entity=eve.id)  # asks for it now
        await bob.service.asking.room(room)
        for one in (alice, bob):
            await one.service.asking.room(room)
        shown = [await one.bodies(room) for one in (alice, bob)]
        assert shown[0] == shown[1]


async def test_nobody_makes_us_ask_for_more_than_a_few_things_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "MAX_SINGLE", 8)
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        asked: list[str] = []
        answered = threading.Event()
        query = alice.network.query

        def waits(key: str, payload: bytes, timeout_seconds: float) -> list[bytes]:
            asked.append(key)
            answered.wait(SECONDS)
            return query(key, payload, timeout_seconds)

        monkeypatch.setattr(alice.network, "query", waits)
        names = [Peer(f"n{number}", number) for number in range(60)]
        for _ in range(2):
            for one in names:  # who they are nobody says
                name = channel_key(doc_id("index", room_id=room, shard_id="2026-11"), Channel.UPDATES)
                bob.network.publish(name, Writer(one, room).next(), b"", QOS_DATA)
        with anyio.fail_after(SECONDS):
            while (await alice.service.counts()).get("unknown_signer", 0) < 120 or len(
                alice.service._sync._doubted
            ) < 8:
                await anyio.sleep(0.01)
        assert len(alice.service._sync._doubted) == 8
        answered.set()
        await bob.bus.message.send(room_id=room, body="heard all the same")
        await alice.until(room, lambda bodies: bodies == ["heard all the same"])
        assert sum("/@n" in key for key in asked) <= 16

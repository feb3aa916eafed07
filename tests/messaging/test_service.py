"""The whole of messaging in one process, over a network in memory that loses, doubles and is cut."""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random

import anyio
import anyio.to_thread
import pytest

from sublet.messaging.backends.sqlite_store import SqliteStore
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration, Index, Refresh
from sublet.messaging.declaring.operating import OperationContext
from sublet.messaging.declaring.registry import Registry
from sublet.messaging.membership import invitations
from sublet.messaging.ports.rows import IndexEntry
from sublet.messaging.service import MessagingService
from sublet.messaging.syncing.answers import inbox
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import entity_domain
from sublet.protocol.ezagent.keys import Channel, channel_key, doc_id
from sublet.protocol.ezagent.question import MAX_AGE_MS, open_answer
from support.consents import TakesAll
from support.members import SECONDS, member, question, room_of
from support.memory_network import MemoryHub
from support.rooms import Clock, Peer, local_entity

pytestmark = pytest.mark.anyio


async def test_an_invited_member_finds_the_room_and_hears(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        await alice.bus.message.send(room_id=room, body="hello")
        await bob.until(room, lambda bodies: bodies == ["hello"])
        seen = await bob.service.watch(bob.id, 0, 5.0, room)
        assert "message.new" in [event["kind"] for event in seen["events"]]
        assert alice.service.level == 0
        assert dir(alice.bus) == [
            "annotation",
            "events",
            "identity",
            "message",
            "purge",
            "room",
            "search",
            "status",
            "timeline",
        ]
        assert "send" in dir(alice.bus.message)
        for missing in ("nothing", "message.nothing"):
            with pytest.raises(AttributeError):
                getattr(alice.bus.message if "." in missing else alice.bus, missing.rpartition(".")[2])


async def test_who_is_not_wanted_brings_nobody_into_a_room(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path, accepts=False) as bob:
        room = (await alice.bus.room.create(name="r", invite=[bob.id]))["room_id"]
        assert await bob.service.watch(bob.id, 0, 0.5) == {"events": [], "cursor": 0, "missed": False}
        assert await bob.bus.room.list() == []
        await bob.service.find_room(room)
        assert [item["room_id"] for item in await bob.bus.room.list()] == [room]


async def test_both_write_while_apart_and_meet_again(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with AsyncExitStack() as stack:
        alice, bob, carol = [
            await stack.enter_async_context(member(name, number, hub, tmp_path))
            for number, name in enumerate(("alice", "bob", "carol"), 1)
        ]
        room = await room_of(alice, bob, carol)
        hub.cut(alice.network, bob.network)
        hub.cut(alice.network, carol.network)
        for number in range(5):
            await alice.bus.message.send(room_id=room, body=f"a{number}")
            await bob.bus.message.send(room_id=room, body=f"b{number}")
        hub.heal()
        for one in (alice, bob, carol):
            await one.until(room, lambda bodies: len(bodies) == 10)
        shown = [await one.bodies(room) for one in (alice, bob, carol)]
        assert shown[0] == shown[1] == shown[2]


async def test_what_is_lost_or_doubled_is_healed(tmp_path: Path) -> None:
    hub = MemoryHub(loss=0.3, doubled=0.3, random=Random(5))
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        for number in range(40):
            await alice.bus.message.send(room_id=room, body=str(number))
        await bob.until(room, lambda bodies: bodies == [str(number) for number in range(40)])
        counts = await bob.service.counts()
        assert counts["accepted"] >= 40
        assert counts["duplicate"] > 0


async def test_a_late_member_reads_what_came_before_in_several_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublet.messaging.syncing.answers.MAX_ANSWER_BYTES", 4_000)
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        room = (await alice.bus.room.create(name="r"))["room_id"]
        for number in range(60):
            await alice.bus.message.send(room_id=room, body=str(number))
        async with member("bob", 2, hub, tmp_path) as bob:
            await alice.bus.room.invite(room_id=room, entity=bob.id)
            await bob.until(room, lambda bodies: bodies == [str(number) for number in range(60)])


async def test_an_author_who_is_gone_is_proven_by_whoever_has_the_log(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        async with member("bob", 2, hub, tmp_path) as bob:
            room = await room_of(alice, bob)
            await bob.bus.message.send(room_id=room, body="I was here")
            await alice.until(room, lambda bodies: bodies == ["I was here"])
        async with member("carol", 3, hub, tmp_path) as carol:
            await alice.bus.room.invite(room_id=room, entity=carol.id)
            await carol.until(room, lambda bodies: bodies == ["I was here"])
            assert (await carol.bus.identity.get_pubkey(entity_id=bob.id))["kind"] == "agent"


async def test_a_periodic_index_is_made_anew_even_after_it_failed(tmp_path: Path) -> None:
    runs: list[int] = []

    def rebuild(context: OperationContext) -> None:
        runs.append(len(runs))
        if len(runs) == 1:
            raise RuntimeError("not yet")
        context.parts.store.put_index([IndexEntry("rooms", "all", "0", {"runs": len(runs)})])

    def read(context: OperationContext) -> int:
        return len(context.parts.store.scan_index("rooms", "all", 10))

    index = Index("rooms", "rooms", "count", Refresh.PERIODIC, "rooms.count", read, rebuild, every_seconds=0.01)
    extension = Declaration(id="rooms", version="1", dependencies=("room",), indexes=(index,))
    async with member("alice", 1, MemoryHub(), tmp_path, more=(extension,)) as alice:
        with anyio.fail_after(SECONDS):
            while not await alice.bus.rooms.count():
                await anyio.sleep(0)
    assert len(runs) >= 2


async def test_two_who_were_told_different_things_find_out_and_show_the_same(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        liars = [Peer("eve", 3, clock=Clock(time.time_ns() // 1_000_000)) for _ in range(2)]
        room = (await alice.bus.room.create(name="r", invite=[bob.id, liars[0].id]))["room_id"]
        await bob.service.find_room(room)
        lines = [hub.join(), hub.join()]
        record = encode_bundle([(RecordKind.IDENTITY, liars[0].entity.record.encode())])
        for liar, line, victim, other in zip(
            liars, lines, (alice, bob), (bob, alice), strict=True
        ):  # each hears of one alone
            hub.cut(line, other.network)
            line.serve(doc_id("pubkey", entity_id=liar.id), lambda query: query.reply(record))
            config = doc_id("config", room_id=room)
            liar.engine.here.want(room)
            key = channel_key(config, Channel.STATE)
            asked = question(key, liar, b"")
            for answer in await anyio.to_thread.run_sync(line.query, key, asked, 5.0):
                liar.engine.intake.take_bundle(room, decode_bundle(open_answer(liar.entity.key, answer)))
            liar.do("message.send", room_id=room, body=f"to {victim.id}")
            for item in liar.published():
                line.publish(item.key, item.payload, item.attachment, item.qos)
            if victim is alice:
                await alice.until(room, lambda bodies: bodies != [])
        await alice.bus.message.send(room_id=room, body="honest")
        for honest in (bob, alice):
            await honest.until(room, lambda bodies: "honest" in str(bodies))
            named: list[str] = []
            since = 0
            with anyio.fail_after(SECONDS):
                while not named:
                    await honest.service.asking.room(room)
                    seen = await honest.service.watch(honest.id, since, 0.0, room)
                    since = seen["cursor"]
                    named = [event["entity"] for event in seen["events"] if event["kind"] == "room.equivocation"]
            assert named == [liars[0].id]
            assert await honest.bodies(room) == ["honest"]


async def test_only_who_signed_the_grant_brings_us_into_a_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = MemoryHub()
    friend, eve = Peer("friend", 5), Peer("eve", 6)
    service = MessagingService(
        tmp_path / "bob.db",
        Registry(BUILT_INS),
        hub.join(),
        [local_entity("bob", 2)],
        lambda: time.time_ns() // 1_000_000,
        lambda home: home == entity_domain(friend.id),
        consent=TakesAll(),
    )
    bob = local_entity("bob", 2).record.entity_id

    def invitation(by: Peer) -> tuple[str, Bundle]:
        by.engine.intake.learn(local_entity("bob", 2).record.encode())
        room = by.do("room.create", name="r", invite=[bob])["room_id"]
        answer = inbox(by.engine, bob, ())
        by.engine.here.ids.discard(room)
        assert answer is not None
        return room, decode_bundle(answer)

    async def offer(bundle: Bundle) -> list[str]:
        line = hub.join()
        key = channel_key(doc_id("inbox", entity_id=bob), Channel.UPDATES)
        payload = encode_bundle(bundle.records)
        await anyio.to_thread.run_sync(line.query, key, payload, 5.0)
        return [room["room_id"] for room in await service.bus(bob).room.list()]

    async with service.running():
        room, bundle = invitation(eve)
        # Eve claims that the friend has signed something in it, too.
        forged = seal(eve.entity.key, friend.id, doc_id("config", room_id=room), 1, b"\0\0").raw
        assert await offer(Bundle((*bundle.records, (RecordKind.ENVELOPE, forged)))) == []
        assert (await service.watch(bob, 0, 0.0))["events"] == []
        wanted, bundle = invitation(friend)
        assert await offer(bundle) == [wanted]
        monkeypatch.setattr(invitations, "MAX_ROOMS_OF_INVITER", 1)
        _, bundle = invitation(friend)
        assert await offer(bundle) == [wanted]
    again = SqliteStore(tmp_path / "bob.db")
    assert again.rooms() == [wanted]
    again.close()


async def test_only_members_are_told_what_is_in_a_room(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        bob, mallory = (Peer(name, 5, clock=Clock(time.time_ns() // 1_000_000)) for name in ("bob", "mallory"))
        room = (await alice.bus.room.create(name="r", invite=[bob.id]))["room_id"]
        await alice.bus.message.send(room_id=room, body="secret")
        line = hub.join()

        async def asked(key: str, payload: bytes) -> list[bytes]:
            return await anyio.to_thread.run_sync(line.query, key, payload, 5.0)

        month = time.strftime("%Y-%m", time.gmtime())
        log = channel_key(doc_id("index", room_id=room, shard_id=month), Channel.STATE)
        config = channel_key(doc_id("config", room_id=room), Channel.STATE)
        rooms = doc_id("inbox", entity_id=bob.id)
        root = doc_id("root", room_id=room)
        tree = doc_id("tree", room_id=room, entity_id=alice.id)
        for key in (log, config, rooms, root, tree):
            assert await asked(key, b"") == [], "nobody asks"
            assert await asked(key, question(key, mallory, b"")) == [], "a stranger asks"
        for key in (log, config, rooms):
            asks = question(key, bob, b"")
            [answer] = await asked(key, asks)
            assert decode_bundle(open_answer(bob.entity.key, answer)).records
            with pytest.raises(Refused):
                open_answer(mallory.entity.key, answer)
            assert b"secret" not in answer, "whoever passes a question on reads nothing of the answer"
            assert await asked(key, asks) == [], "the same question again"
            late = Peer("bob", 6, clock=Clock(bob.clock.now_ms - MAX_AGE_MS - 60_000))
            assert await asked(key, question(key, late, b"")) == [], "an old question"
        assert await asked(log, question(config, bob, b"")) == [], "a question about something else"
        assert await asked(rooms, question(rooms, mallory, b"")) == []
        await alice.bus.room.update_config(room_id=room, changes={"membership.policy": "knock"})
        assert await asked(config, question(config, mallory, b"")), "who may knock has to know of the room"
        assert await asked(log, question(log, mallory, b"")) == []


async def test_whoever_was_away_gets_long_messages_too(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        hub.cut(alice.network, bob.network)
        for number in range(160):
            await alice.bus.message.send(room_id=room, body=f"{number:03}" + "x" * 60_000)
        hub.heal()
        await bob.until(room, lambda bodies: len(bodies) == 160 and None not in bodies)

"""A member who floods: what waits and what is kept has a bound in bytes, and others keep their share of it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import anyio
import pytest

from attacks.counting import lines_run
from attacks.kit.room_floods import LISTS, Query, acknowledgement, present, saying, statements
from sublet.messaging.accepting import config_gathering
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.accepting.config_gathering import FREE_STATEMENTS
from sublet.messaging.delivery import heard as heard_module
from sublet.messaging.delivery.heard import (
    MAX_ACKNOWLEDGEMENT_BYTES,
    MAX_HEARD_BYTES,
    MAX_HEARD_OF_SIGNER,
    AcknowledgementQueue,
)
from sublet.messaging.delivery.receipts import Receipt
from sublet.messaging.engine.engine import Engine
from sublet.messaging.membership import catching_up, joining
from sublet.messaging.membership.invitations import read_offer, rooms_in
from sublet.messaging.parts import MAX_STRAY_RECORDS, PART_BYTES, PART_RECORDS, parts_of
from sublet.messaging.passing import kept_passing
from sublet.messaging.running import hand_over
from sublet.messaging.running.fair_queue import Bounds, FairQueue, claimed_sender
from sublet.messaging.running.hand_over import HandOver
from sublet.messaging.syncing import replays
from sublet.messaging.syncing.answers import offer
from sublet.messaging.syncing.doorkeeper import Doorkeeper
from sublet.protocol.ezagent.bundle import Bundle, RecordKind, decode_bundle, encode_bundle
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.ids import entity_domain
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.question import MAX_AGE_MS
from support.members import SECONDS, member, question, room_of
from support.memory_network import MemoryHub
from support.rooms import Peer, peers, shared_room

LINEAR = 2.5


def test_a_flood_displaces_itself_however_many_names_it_uses() -> None:
    queue: FairQueue[str] = FairQueue(Bounds(100, 10_000, 50, 4_000))
    for number in range(50):
        queue.add(b"@eve%d" % number, f"eve {number}", 1_000)
    assert queue.size == 10_000
    for number in range(5):
        queue.add(b"@mallory", f"mallory {number}", 900)
    assert queue.add(b"@alice", "alice", 500) != ["alice"]
    assert queue.size <= 10_000
    taken = []
    while len(queue):
        taken.append(queue.take())
    assert "alice" in taken
    assert queue.size == 0


def test_acknowledgements_that_wait_are_bounded_in_bytes_and_each_signer_has_a_share() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room, other = shared_room(alice, bob, eve), shared_room(alice, bob)
    heard = AcknowledgementQueue()
    flood = acknowledgement(eve, room, 200_000).payload
    for _ in range(1_000):
        heard.add(room, flood)
    names = [Peer(f"eve{number}", number) for number in range(60)]
    for one in names:
        heard.add(room, acknowledgement(one, room, 200_000).payload)
    assert heard.size <= MAX_HEARD_BYTES
    honest = acknowledgement(bob, other, 300).payload
    heard.add(other, honest)
    taken = [heard.take() for _ in range(len(names) + 10)]
    assert (other, honest) in taken
    assert heard.missed() == [room], "what found no room is asked for"
    assert heard.missed() == []
    small = acknowledgement(eve, room, 10).payload
    for _ in range(2 * MAX_HEARD_OF_SIGNER):
        heard.add(room, small)
    heard.add(room, acknowledgement(eve, room, MAX_ACKNOWLEDGEMENT_BYTES).payload)
    assert heard.missed() == [room]


@pytest.mark.anyio
async def test_nothing_acknowledged_is_lost_in_a_flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard_module, "MAX_HEARD_BYTES", 20_000)
    monkeypatch.setattr(catching_up, "PERIOD_SECONDS", 3_600.0)
    hub, eve = MemoryHub(), Peer("eve", 9)
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        plain, lost = alice.service.delivery.heard, list[str]()
        waiting = alice.service.delivery._acknowledging._heard

        def drowns(room_id: str, raw: bytes) -> bool:
            """Let every acknowledgement come while the queue is full."""
            waiting._missed[room_id] = None
            lost.append(room_id)
            return True

        monkeypatch.setattr(waiting, "add", drowns)
        sent = (await alice.bus.message.send(room_id=room, body="hello"))["ref_id"]
        for _ in range(500):
            plain(acknowledgement(eve, room, 10_000))
        with anyio.fail_after(SECONDS):
            found = await alice.service.delivery.receipts(alice.id, room, sent, Receipt.DELIVERED, SECONDS)
        assert found.receipt is Receipt.DELIVERED
        assert lost, "the flood was there"


@pytest.mark.anyio
async def test_what_is_handed_over_is_bounded_in_bytes_while_the_loop_stands_still(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hand_over, "MAX_TODO_BYTES", 100_000)
    done: list[object] = []

    async def overflowed() -> None:
        done.append("overflowed")

    over = HandOver()
    over.begin(overflowed)
    for _ in range(1_000):
        over.soon(done.append, bytes(1_000))
        assert over._size <= 100_000
    async with anyio.create_task_group() as group:
        group.start_soon(over.dispatch, group)
        with anyio.fail_after(SECONDS):
            while "overflowed" not in done:
                await anyio.sleep(0.01)
        over.soon(done.append, "later")
        with anyio.fail_after(SECONDS):
            while "later" not in done:
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert over._size == 0
    assert len(done) < 110


def ask(keeper: Doorkeeper, host: Peer, asker: Peer, room: str, raw: bytes | None = None) -> bytes:
    """Ask for a room's config; return the question as it travelled."""
    key = f"{doc_id('config', room_id=room)}/state"
    query = Query(raw or question(key, asker, b"\0"), key)
    assert keeper.admit(host.engine, query) is not None
    return query.payload


def test_no_peer_pushes_out_what_another_has_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "MAX_NONCES_OF_PEER", 6)
    monkeypatch.setattr(replays, "MAX_NONCES", 12)
    alice, bob, eve, carol = peers("alice", "bob", "eve", "carol")
    room = shared_room(alice, bob, eve, carol)
    keeper = Doorkeeper()
    of_bob = [ask(keeper, alice, bob, room) for _ in range(3)]
    of_eve = []
    for number in range(40):
        eve.clock.now_ms += 1
        of_eve.append(ask(keeper, alice, eve, room))
        if number == 20:
            ask(keeper, alice, carol, room)
    assert len(keeper._seen) <= 12
    assert all(len(seen.nonces) <= 6 for seen in keeper._seen._peers.values())
    for raw in (*of_bob, *of_eve):  # what was forgotten is not answered either
        with pytest.raises(Refused, match="before"):
            ask(keeper, alice, bob, room, raw)
    alice.clock.now_ms += MAX_AGE_MS + 1_000
    bob.clock.now_ms = alice.clock.now_ms
    ask(keeper, alice, bob, room)
    carol.clock.now_ms = eve.clock.now_ms = alice.clock.now_ms
    for one in (carol, eve):
        ask(keeper, alice, one, room)
    assert len(keeper._seen) == 3, "what is too old anyway takes no memory"


def test_presence_takes_the_memory_of_its_text_and_gives_it_back() -> None:
    alice, bob, room = present()
    ephemeral = alice.engine.ephemeral
    alice.engine.intake.take([saying(bob, room, b"{}")])
    alice.clock.now_ms = bob.clock.now_ms = bob.clock.now_ms + 100
    said = saying(bob, room, LISTS)
    tracemalloc.start()
    try:
        alice.engine.intake.take([said])
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept < 8 * len(LISTS), "parsed, it would be twenty times as much"
    assert ephemeral.said(room, bob.id) is not None
    assert ephemeral._said.size < 2 * len(LISTS)
    alice.do("room.kick", room_id=room, entity=bob.id)
    assert (ephemeral._said.size, ephemeral._said.count) == (0, 0), "given back as the member goes"


def test_presence_is_bounded_in_bytes_for_each_daemon_and_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_passing, "MAX_PRESENT_BYTES_OF_DAEMON", 10_000)
    monkeypatch.setattr(kept_passing, "MAX_PRESENT_BYTES", 25_000)
    kept = kept_passing.KeptPassing[bytes](entity_domain)
    for domain in ("eve", "mallory", "bob"):
        for number in range(20):
            key = ("room", f"@e{number}:{domain}")
            if kept.has_room(key, 2_000):
                kept.put(key, bytes(2_000), 2_000)
    assert kept.size <= 25_000
    sizes = {domain: kept._sizes[domain] for domain in ("eve", "mallory", "bob")}
    assert sizes["bob"] > 0
    assert max(sizes.values()) <= 10_000
    for key, _ in kept.all():
        kept.drop(key)
    assert (kept.size, kept.count, len(kept._sizes), len(kept._rooms)) == (0, 0, 0, 0)


def invitation(who: bytes, size: int) -> Query:
    """Return an invitation whose first envelope claims a signer."""
    envelope = b"\1" + len(who).to_bytes(2, "big") + who + bytes(size)
    return Query(encode_bundle([(RecordKind.ENVELOPE, envelope)]))


@pytest.mark.anyio
async def test_invitations_that_wait_are_bounded_in_bytes_and_each_inviter_has_a_share(tmp_path: Path) -> None:
    hub = MemoryHub()
    async with member("alice", 1, hub, tmp_path) as alice:
        waiting = alice.service._joining._waiting
        flood = [invitation(b"@eve:a", 5 << 20) for _ in range(16)]
        flood += [invitation(b"@mallory:b", 2 << 20) for _ in range(4)]
        for one in flood:  # no step of the event loop between
            alice.service._joining.invited(one)
            assert waiting.size <= joining.MAX_INVITATIONS_BYTES
        honest = invitation(b"@bob:c", 2 << 20)
        alice.service._joining.invited(honest)
        assert honest.became is None
        assert waiting.size <= joining.MAX_INVITATIONS_BYTES
        with anyio.fail_after(SECONDS):
            while None in [one.became for one in (*flood, honest)]:
                await anyio.sleep(0.01)
        assert honest.became == "read"


def config_of(number: int) -> tuple[Peer, str, Bundle]:
    """Return a member who is invited by a config of so many statements, with as many records of nobody."""
    alice, bob = peers("alice", "bob")
    room = alice.do("room.create", name="r", invite=[bob.id])["room_id"]
    raw = offer(alice.engine, bob.id, [room])
    assert raw is not None
    records = list(decode_bundle(raw).records)
    records += [(RecordKind.IDENTITY, b"{%d}" % one) for one in range(number)]
    records += [(RecordKind.ENVELOPE, one.envelope) for one in statements(alice, room, number)]
    return bob, room, Bundle(tuple(records))


def read_invitation(given: tuple[Peer, str, Bundle]) -> None:
    bob, room, bundle = given
    (offered,) = rooms_in(bundle, joining.MAX_ROOMS_OF_INVITATION).values()
    assert len(offered.config.of(RecordKind.IDENTITY)) <= 1
    signers = offered.signers
    assert read_offer(lambda: Peer("bob", 1_001).engine, room, offered.config, signers).by in signers
    assert bob.id not in signers


def test_reading_an_invitation_costs_what_its_bytes_are() -> None:
    small, large = config_of(150), config_of(300)
    read_invitation(config_of(4))
    costs = [lines_run(lambda given=given: read_invitation(given)) for given in (small, large)]  # type: ignore[misc]
    assert costs[1] / costs[0] <= LINEAR


def test_an_invitation_tells_of_a_few_rooms() -> None:
    (alice,) = peers("alice")
    rooms = [alice.do("room.create", name=f"r{number}")["room_id"] for number in range(20)]
    raw = offer(alice.engine, alice.id, rooms)
    assert raw is not None
    found = rooms_in(decode_bundle(raw), joining.MAX_ROOMS_OF_INVITATION)
    assert len(found) == joining.MAX_ROOMS_OF_INVITATION


def one_by_one(number: int) -> tuple[Peer, list[Arrival]]:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    alice.engine.intake.take(list(statements(bob, room, 100, nonce=5)))
    return alice, list(statements(bob, room, number))


def take_each(given: tuple[Peer, list[Arrival]]) -> None:
    alice, arrivals = given
    for arrival in arrivals:
        alice.engine.intake.take([arrival])


def test_a_config_that_grows_one_by_one_costs_what_its_bytes_are() -> None:
    take_each(one_by_one(4))
    costs = []
    for number in (400, 800):
        given = one_by_one(number)
        costs.append(lines_run(lambda given=given: take_each(given)))  # type: ignore[misc]
    assert costs[1] / costs[0] <= LINEAR


def test_what_waits_for_a_config_to_be_decided_is_all_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, arrivals = one_by_one(200)
    take_each((alice, arrivals))
    gathering = alice.engine.intake.gathering
    assert 0 < gathering.size < config_gathering.MAX_GATHERED_BYTES_OF_ROOM
    wait = gathering.wait_seconds()
    assert wait is not None
    alice.clock.now_ms += int(wait * 1_000) + 1
    assert gathering.wait_seconds() == 0
    alice.engine.intake.take_due()
    assert gathering.size == 0
    assert gathering.wait_seconds() is None
    assert alice.engine.intake.counts["accepted"] >= 300
    assert not alice.refused()
    (room,) = alice.engine.here.ids
    assert alice.engine.rooms.length(room) > 300
    monkeypatch.setattr(config_gathering, "MAX_GATHERED_BYTES", 1_000)
    alice.engine.intake.take(arrivals[:1])
    assert gathering.size == 0


@pytest.mark.anyio
async def test_a_running_daemon_takes_what_waits_when_the_pause_is_over(tmp_path: Path) -> None:
    hub, number = MemoryHub(), 300
    async with member("alice", 1, hub, tmp_path) as alice, member("bob", 2, hub, tmp_path) as bob:
        room = await room_of(alice, bob)
        writer = Peer("bob", 3)
        writer.clock.now_ms = 1_795_852_800_000
        arrivals = list(statements(writer, room, number))

        def one_by_one_here(engine: Engine) -> None:
            engine.intake.learn(writer.entity.record.encode())
            for arrival in arrivals:
                engine.intake.take([arrival])

        await alice.service.on_engine(one_by_one_here)
        counts = await alice.service.counts()
        assert counts["gathered"] > 0
        with anyio.fail_after(SECONDS):
            while await alice.service.on_engine(lambda engine: engine.rooms.length(room)) < number:
                await anyio.sleep(0.01)
        await alice.bus.message.send(room_id=room, body="heard")
        await bob.until(room, lambda bodies: bodies == ["heard"])


def test_one_members_statements_leave_room_for_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublet.messaging.quotas.quotas.MAX_STATEMENTS_OF_MEMBERS", 50)
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    for arrival in statements(bob, room, FREE_STATEMENTS):
        alice.engine.intake.take([arrival])
    assert alice.refused()["quota"] > 0
    assert alice.engine.rooms.length(room) < FREE_STATEMENTS + 21
    bob.do("room.leave", room_id=room)
    alice.do("room.update_config", room_id=room, changes={"name": "mine"})
    assert alice.do("room.list")[0]["name"] == "mine"


def test_an_answer_is_taken_in_parts_and_proves_no_more_records_than_it_has_updates() -> None:
    records = [(RecordKind.IDENTITY, b"x")] * 10_000
    records += [(RecordKind.ENVELOPE, bytes(100)), (RecordKind.CONTENT, bytes(PART_BYTES))] * 3
    records += [(RecordKind.ENVELOPE, b"y")] * 1_000
    parts = parts_of(Bundle(tuple(records)))
    assert sum(len(part.of(RecordKind.IDENTITY)) for part in parts) == 1_003 + MAX_STRAY_RECORDS
    assert [raw for part in parts for kind, raw in part.records if kind is not RecordKind.IDENTITY] == [
        raw for kind, raw in records if kind is not RecordKind.IDENTITY
    ]
    for part in parts:
        assert len(part.records) <= PART_RECORDS + 1
        assert not part.records or part.records[0][0] is not RecordKind.CONTENT, "it stays with what names it"


def test_the_sender_of_a_bundle_is_read_without_a_walk_through_all_of_it() -> None:
    records = [(RecordKind.IDENTITY, b"")] * 50_000
    assert claimed_sender(encode_bundle(records)) == b""
    assert claimed_sender(encode_bundle([*records[:5], (RecordKind.ENVELOPE, b"\1\0\2@erest")])) == b"@e"
    for cut in (b"", b"\1", b"\1\0\1", b"\1\0\1\xff\xff\xff\xff", b"\1\0\1\0\0\0\0\1\xff"):
        assert claimed_sender(cut) == b""

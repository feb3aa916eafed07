"""What strangers send is bounded, whatever they send, and nobody else is the worse for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.documents import held
from sublet.messaging.identities import keyring
from sublet.messaging.intake import waiting
from sublet.messaging.opening.shards import TimelineShards
from sublet.messaging.quotas import quotas
from sublet.messaging.syncing.history import _older
from sublet.protocol.ezagent.content import canonical, content_object, sign_content
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.identity import EntityKind, make_record
from sublet.protocol.ezagent.ids import own_ref_id, room_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.encode import Transaction
from support.rooms import NOW_MS, Peer, entity_key, peers, shared_room

SHARD = "2026-11"


class Writer:
    """Makes valid envelopes of one entity, of one ref each, without an engine."""

    def __init__(self, peer: Peer, room: str, shard: str = SHARD) -> None:
        self.peer, self.room, self.clock = peer, room, 0
        self.name = doc_id("index", room_id=room, shard_id=shard)
        self.last: Any = None

    def next(self, size: int = 0, content: bytes | None = None) -> bytes:
        transaction = Transaction(self.peer.client, self.clock)
        fields = {
            "ref_id": own_ref_id(NOW_MS, self.room, self.peer.id, self.clock),
            "author": self.peer.id,
            "content_type": "immutable",
            "content_id": json.loads(content)["content_id"] if content is not None else "sha256:" + "0" * 64,
            "created_at": "2026-11-29T00:00:00.000Z",
            "status": "active",
            "ext.padding": "x" * size,
        }
        self.last = transaction.append_maps("timeline", self.last, [fields])[-1]
        self.clock = transaction.clock
        return seal(self.peer.entity.key, self.peer.id, self.name, NOW_MS, transaction.encode()).raw


@pytest.fixture
def world() -> tuple[Peer, Peer, Peer, str]:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob)
    alice.do("message.send", room_id=room, body="first")
    bob.hear(alice.published())
    return alice, bob, eve, room


def log_size(peer: Peer) -> int:
    return sum(len(peer.store.envelope(seq)) for seq in range(1, peer.store.last_seq() + 1))


def documents_of(peer: Peer, room: str) -> int:
    (count,) = peer.store._db.execute("SELECT count(*) FROM documents WHERE room_id = ?", (room,)).fetchone()
    return int(count)


def test_a_stranger_is_kept_up_to_a_bound_and_heard_in_full_once_a_member(world: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, eve, room = world
    writer = Writer(eve, room)
    sent = [Arrival(writer.next()) for _ in range(quotas.MAX_STRANGER_UPDATES + 50)]
    bob.engine.intake.take(sent)
    assert bob.refused()["quota"] == 50
    assert bob.bodies(room) == ["first"]
    bob.engine.intake.take(sent)
    assert bob.store.last_seq() == 2 + quotas.MAX_STRANGER_UPDATES
    alice.do("message.send", room_id=room, body="second")
    bob.hear(alice.published())
    assert bob.bodies(room) == ["first", "second"]
    alice.do("room.invite", room_id=room, entity=eve.id)
    bob.hear(alice.published())
    bob.engine.intake.take(sent)
    document = bob.engine.documents.open(doc_id("index", room_id=room, shard_id=SHARD))
    assert sum(bob.engine.reading.counts(document, node) for node in document.elements.chain) == 2 + len(sent)
    assert bob.store.trust.strangers(room) == {}


def test_large_updates_and_many_strangers_are_bounded_too(
    world: tuple[Peer, Peer, Peer, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _alice, bob, eve, room = world
    before, writer = log_size(bob), Writer(eve, room)
    bob.engine.intake.take([Arrival(writer.next(100_000)) for _ in range(8)])
    assert log_size(bob) - before <= quotas.MAX_STRANGER_BYTES
    monkeypatch.setattr(quotas, "MAX_STRANGERS_BYTES", quotas.MAX_STRANGER_BYTES + 20_000)
    before = log_size(bob)
    for number in range(20):
        stranger = Peer(f"s{number}", number)
        bob.meet(stranger)
        bob.engine.intake.take([Arrival(Writer(stranger, room).next(2_000))])
    assert 0 < log_size(bob) - before <= 80_000
    # what was used is known after a restart
    used = bob.store.trust.strangers(room)
    bob.engine.quotas.forget()
    bob.engine.intake.take([Arrival(writer.next(100_000))])
    assert bob.store.trust.strangers(room) == used


def test_strangers_begin_no_documents_and_delete_nothing(world: tuple[Peer, Peer, Peer, str]) -> None:
    _, bob, eve, room = world
    documents = documents_of(bob, room)
    for number in range(20):
        shard = f"2026-{number % 12 + 1:02}-{number + 1:03}"
        bob.engine.intake.take([Arrival(Writer(eve, room, shard).next())])
        forged = seal(
            entity_key("nobody"), eve.id, doc_id("index", room_id=room, shard_id=f"2025-{shard[5:]}"), 1, b"\0\0"
        )
        bob.engine.intake.take([Arrival(forged.raw)])
    assert documents_of(bob, room) == documents
    node = bob.engine.documents.open(doc_id("index", room_id=room, shard_id=SHARD)).elements.chain.tail
    assert node is not None
    seq = bob.store.last_seq()
    delete = b"\0\1" + varint(node.id[0]) + b"\1" + varint(node.id[1]) + b"\1"
    for at in range(20):
        raw = seal(eve.entity.key, eve.id, doc_id("index", room_id=room, shard_id=SHARD), at, delete).raw
        bob.engine.intake.take([Arrival(raw)])
    assert bob.store.last_seq() == seq
    assert bob.bodies(room) == ["first"]


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def test_a_strangers_gaps_are_not_held_and_a_members_push_out_nobodys(
    world: tuple[Peer, Peer, Peer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, eve, room = world
    document = bob.engine.documents.open(doc_id("index", room_id=room, shard_id=SHARD))
    writer = Writer(eve, room)
    writer.next()
    bob.engine.intake.take([Arrival(writer.next()) for _ in range(10)])
    assert len(document.held) == 0
    alice.do("message.send", room_id=room, body="missing")
    missing = alice.published()
    alice.do("message.send", room_id=room, body="waits")
    bob.hear(alice.published())
    alice.do("room.invite", room_id=room, entity=eve.id)
    bob.hear(alice.published())
    monkeypatch.setattr(held, "MAX_HELD_OF_SIGNER", 5)
    bob.engine.intake.take([Arrival(writer.next()) for _ in range(20)])
    assert len(document.held) == 6
    bob.hear(missing)
    assert bob.bodies(room) == ["first", "missing", "waits"]


def test_who_is_not_known_waits_within_bounds(
    world: tuple[Peer, Peer, Peer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bob, _, room = world
    monkeypatch.setattr(waiting, "MAX_WAITING_BYTES", 50_000)
    for number in range(40):
        stranger = Peer(f"s{number}", number)
        writer = Writer(stranger, room)
        bob.engine.intake.take([Arrival(writer.next(1_000)) for _ in range(10)])
    full = bob.engine.intake.strangers.size
    assert 0 < full <= 50_000
    bob.meet(Peer("s0", 0))
    assert 0 < bob.engine.intake.strangers.size < full


def test_those_whom_nobody_knows_take_no_members_place(
    world: tuple[Peer, Peer, Peer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MAX_UNKNOWN_SIGNERS", 4)
    alice, bob, _, room = world
    carol = Peer("carol", 8)
    alice.meet(carol)
    alice.do("room.invite", room_id=room, entity=carol.id)
    bob.hear(alice.published())
    outcome = bob.engine.intake.take([Arrival(Writer(Peer(f"s{number}", number), room).next()) for number in range(9)])
    assert len(outcome.unknown_signers) == 9
    said = Arrival(Writer(carol, room).next())
    bob.engine.intake.take([said])
    bob.engine.intake.take([Arrival(Writer(Peer(f"t{number}", number), room).next()) for number in range(9)])
    before = bob.engine.intake.counts["accepted"]
    bob.meet(carol)
    assert bob.engine.intake.counts["accepted"] == before + 1
    bob.meet(Peer("t8", 8), Peer("s0", 0))
    assert bob.engine.intake.counts["accepted"] == before + 2, "of strangers the last ones wait"


def test_contents_that_nothing_names_are_not_kept(world: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, eve, room = world
    stuffed = [
        canonical(sign_content(content_object(eve.id, f"x{number}" * 500, "text/plain", "now", []), eve.entity.key))
        for number in range(30)
    ]
    alice.do("message.send", room_id=room, body="carries")
    (out,) = alice.published()
    bob.engine.intake.take([Arrival(out.payload, tuple(stuffed))])
    bob.engine.intake.take([Arrival(out.payload, tuple(stuffed))])
    assert bob.store._db.execute("SELECT count(*) FROM contents").fetchone() == (1,)
    bob.hear([out])  # it came without its content, which comes with the same update again
    assert bob.bodies(room) == ["first", "carries"]


def test_records_of_strangers_are_bounded_and_those_of_members_are_always_taken(
    world: tuple[Peer, Peer, Peer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, _, room = world
    monkeypatch.setattr(keyring, "MAX_RECORDS", 10)
    refused = 0
    for number in range(30):
        domain = entity_key(f"d{number}")
        raw = make_record("x", EntityKind.AGENT, bytes(domain.verify_key), domain, 1).encode()
        try:
            bob.engine.intake.learn(raw)
        except ValueError:
            refused += 1
    bob.engine.staging.commit()
    assert len(bob.store.records()) <= 10
    assert refused == 30 - 7
    carol = Peer("carol", 8)
    alice.meet(carol)
    alice.do("room.invite", room_id=room, entity=carol.id)
    bob.hear(alice.published())
    bob.meet(carol)
    assert bob.engine.keyring.keys(carol.id) is not None


def test_what_came_with_the_grant_in_one_batch_is_not_lost() -> None:
    alice, bob = peers("alice", "bob")
    (carol,) = peers("carol")
    carol.meet(alice, bob)
    room = shared_room(alice, bob)
    alice.do("room.invite", room_id=room, entity=carol.id)
    alice.do("message.send", room_id=room, body="one")
    carol.engine.here.want(room)
    carol.catch_up(alice, room)
    (late,) = peers("dave")
    late.meet(alice, bob)
    late.engine.here.want(room)
    everything = [Arrival(alice.store.envelope(seq)) for seq in range(1, alice.store.last_seq() + 1)]
    late.engine.intake.take(everything)
    assert late.refused() == {}
    assert late.engine.documents.open(doc_id("index", room_id=room, shard_id=SHARD)).elements.chain.tail is not None


def test_a_member_who_begins_parts_of_a_timeline_that_nobody_looks_for_takes_the_month_from_nobody(
    world: tuple[Peer, Peer, Peer, str],
) -> None:
    alice, bob, _, room = world
    for shard in ("2026-11-999", "2026-11-002", "9999-12", "3000-01", "2026-10"):
        alice.engine.intake.take([Arrival(Writer(bob, room, shard).next())])
    assert alice.refused() == {"quota": 5}
    assert alice.engine.shards.names(room) == ["2026-11"]
    # dense, but with one message each: nobody follows there
    for number in range(1, 9):
        alice.engine.intake.take([Arrival(Writer(bob, room, f"2026-11-{number:03}").next())])
    assert len(alice.engine.shards.names(room)) == 9
    assert alice.do("message.send", room_id=room, body="goes on")["room_id"] == room
    assert alice.engine.shards.for_new_ref(room).endswith("/2026-11")
    shards = TimelineShards(
        alice.store, alice.engine.documents, alice.engine.rooms, alice.engine.now_ms
    )  # as after a start
    assert shards.for_new_ref(room).endswith("/2026-11")


def test_a_member_who_begins_many_documents_keeps_others_from_none(
    world: tuple[Peer, Peer, Peer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, eve, room = world
    monkeypatch.setattr(quotas, "MAX_DOCUMENTS_OF_DAEMON", 4)
    alice.do("room.invite", room_id=room, entity=eve.id)
    bob.hear(alice.published())
    for number in range(1, 9):
        bob.engine.intake.take([Arrival(Writer(eve, room, f"2026-11-{number:03}").next())])
    assert bob.refused() == {"quota": 4}
    bob.engine.quotas.forget()
    bob.engine.intake.take([Arrival(Writer(eve, room, "2026-12").next())])
    assert bob.refused() == {"quota": 5}
    bob.engine.intake.take([Arrival(Writer(alice, room, "2026-12").next())])
    assert bob.refused() == {"quota": 5}
    assert bob.engine.shards.names(room)[-1] == "2026-12"


def test_a_room_that_says_to_be_from_the_end_of_time_is_read_like_any_other() -> None:
    alice, bob = peers("alice", "bob")
    made = room_id(alice.id, (1 << 48) - 1, b"s" * 16)
    assert bob.engine.shards.first_month(made) == "2026-11"
    bob.engine.here.want(made)
    assert _older(bob.engine, made) == []

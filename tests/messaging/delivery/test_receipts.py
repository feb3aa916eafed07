"""Receipts between engines: what was acknowledged, by whom, of which message, and what nobody can claim."""

from __future__ import annotations

import os

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.delivery.acknowledged import Taken, acknowledge, answer, bundle_of, question, take
from sublet.messaging.delivery.receipts import Receipt, receipts_of
from sublet.messaging.extensions.read_receipts import RECEIPTS
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.acknowledgement import MAX_SHARDS, Acknowledgement, parse_acknowledgement
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import Peer, entity_key, peers, shared_room

PATIENCE = 3_600.0
EPOCH = bytes(8)


def crew(*names: str) -> list[Peer]:
    return peers(*names, declarations=(*BUILT_INS, RECEIPTS))


def send(peer: Peer, room: str, body: str = "hello") -> str:
    ref: str = peer.do("message.send", room_id=room, body=body)["ref_id"]
    return ref


def states(peer: Peer, room: str, ref: str) -> dict[str, str]:
    found = receipts_of(peer.engine, peer.id, room, ref, PATIENCE)
    return {one.entity: str(one.receipt) for one in found.recipients}


def asked(asker: Peer, recipient: Peer, room: str) -> bool:
    """Ask a recipient what it holds, and take the answer."""
    payload = Acknowledgement(EPOCH, question(asker.engine, room)).encode()
    found = answer(recipient.engine, room, payload)
    return found is not None and take(asker.engine, room, found).news


def test_a_message_is_queued_delivered_and_read_by_each_recipient_on_its_own() -> None:
    alice, bob, carol = crew("alice", "bob", "carol")
    room = shared_room(alice, bob, carol)
    ref = send(alice, room)
    assert states(alice, room, ref) == {bob.id: "queued", carol.id: "queued"}
    assert not asked(alice, bob, room)
    sent = alice.published()
    bob.hear(sent)
    assert asked(alice, bob, room)
    assert not asked(alice, bob, room)
    assert states(alice, room, ref) == {bob.id: "delivered", carol.id: "queued"}
    assert receipts_of(alice.engine, alice.id, room, ref, PATIENCE).receipt is Receipt.QUEUED
    carol.hear(sent)
    carol.do("timeline.list", room_id=room)
    alice.hear(carol.published())
    assert states(alice, room, ref) == {bob.id: "delivered", carol.id: "read"}
    assert receipts_of(alice.engine, alice.id, room, ref, PATIENCE).receipt is Receipt.DELIVERED
    assert alice.do("message.send", room_id=room, body="next")["ref_id"] != ref
    assert states(alice, room, ref)[carol.id] == "read"


def test_only_what_arrived_before_a_message_was_missed_counts_as_delivered() -> None:
    alice, bob = crew("alice", "bob")
    room = shared_room(alice, bob)
    first = send(alice, room)
    bob.hear(alice.published())
    second = send(alice, room)
    asked(alice, bob, room)
    assert states(alice, room, first) == {bob.id: "delivered"}
    assert states(alice, room, second) == {bob.id: "queued"}
    assert list(question(alice.engine, room).values()) != []
    bob.hear(alice.published())
    asked(alice, bob, room)
    assert states(alice, room, second) == {bob.id: "delivered"}
    assert question(alice.engine, room) == {}


def test_the_recipients_are_those_who_were_members_when_it_was_sent() -> None:
    alice, bob, carol = crew("alice", "bob", "carol")
    room = shared_room(alice, bob)
    before = send(alice, room)
    alice.do("room.invite", room_id=room, entity=carol.id)
    after = send(alice, room)
    assert set(states(alice, room, before)) == {bob.id}
    assert set(states(alice, room, after)) == {bob.id, carol.id}
    alice.do("room.kick", room_id=room, entity=bob.id)
    found = receipts_of(alice.engine, alice.id, room, before, PATIENCE)
    assert found.receipt is Receipt.UNDELIVERABLE
    assert "no member" in found.recipients[0].reason
    assert alice.bodies(room) == ["hello", "hello"]
    assert set(states(alice, room, send(alice, room))) == {carol.id}


def test_who_is_silent_for_too_long_can_still_answer() -> None:
    alice, bob = crew("alice", "bob")
    room = shared_room(alice, bob)
    ref = send(alice, room)
    alice.clock.now_ms += int(PATIENCE * 1_000) + 1
    assert states(alice, room, ref) == {bob.id: "undeliverable"}
    bob.hear(alice.published())
    asked(alice, bob, room)
    assert states(alice, room, ref) == {bob.id: "delivered"}


def test_receipts_outlive_the_process(tmp_path: os.PathLike[str]) -> None:
    alice, bob = crew("alice", "bob")
    alice.path = tmp_path / "alice.db"  # type: ignore[operator]
    alice.open()
    alice.meet(bob)
    room = shared_room(alice, bob)
    ref = send(alice, room)
    bob.hear(alice.published())
    asked(alice, bob, room)
    alice.store.close()
    alice.open()
    assert states(alice, room, ref) == {bob.id: "delivered"}


def test_receipts_are_for_the_author_alone() -> None:
    alice, bob = crew("alice", "bob")
    room = shared_room(alice, bob)
    ref = send(alice, room)
    bob.hear(alice.published())
    for peer, asked_for in ((bob, ref), (alice, "01" * 13)):
        with pytest.raises(SubletError, match="no message"):
            receipts_of(peer.engine, peer.id, room, asked_for, PATIENCE)


def test_nobody_acknowledges_for_another_nor_more_than_there_is() -> None:
    alice, bob, mallory = crew("alice", "bob", "mallory")
    room = shared_room(alice, bob)
    ref = send(alice, room)
    document, written = doc_id("delivery", room_id=room), question(alice.engine, room)
    claim = Acknowledgement(EPOCH, {shard: dict.fromkeys(found, 9_999) for shard, found in written.items()}).encode()

    def claimed(signer: str, key: str, where: str = document) -> bytes:
        return bundle_of([seal(entity_key(key), signer, where, alice.clock.now_ms, claim).raw])

    with pytest.raises(Refused, match="bad_signature"):
        take(alice.engine, room, claimed(bob.id, "mallory"))
    for raw in (
        claimed(mallory.id, "mallory"),
        claimed("@stranger:node", "mallory"),
        claimed(alice.id, "alice"),
        claimed(bob.id, "bob", doc_id("config", room_id=room)),
    ):
        assert take(alice.engine, room, raw) == Taken()
    assert states(alice, room, ref) == {bob.id: "queued"}
    assert take(alice.engine, room, claimed(bob.id, "bob")).news
    later = send(alice, room)
    assert states(alice, room, ref) == {bob.id: "delivered"}
    assert states(alice, room, later) == {bob.id: "queued"}


def test_of_an_epoch_the_newest_counts() -> None:
    alice, bob = crew("alice", "bob")
    room = shared_room(alice, bob)
    send(alice, room)
    bob.hear(alice.published())
    assert alice.engine.epochs.of(bob.id) is None
    asked(alice, bob, room)
    first = bob.engine.epochs.own
    assert alice.engine.epochs.of(bob.id) == first
    send(alice, room)
    bob.hear(alice.published())
    held = question(alice.engine, room)
    old = acknowledge(bob.engine, room, held)
    bob.clock.now_ms += 1
    bob.engine.epochs.own = b"anew...."
    take(alice.engine, room, bundle_of(acknowledge(bob.engine, room, held)))
    take(alice.engine, room, bundle_of(old))
    assert alice.engine.epochs.of(bob.id) == b"anew...."


def test_an_acknowledgement_has_one_form() -> None:
    good = Acknowledgement(b"12345678", {"2026-11": {5: 6, 7: 8}, "2026-11-001": {}})
    raw = good.encode()
    assert parse_acknowledgement(raw) == good
    for wrong in (b"", raw[:-1], raw + b"\0", b"\2" + raw[1:], raw.replace(b"2026-11", b"2026/11", 1)):
        with pytest.raises(Refused):
            parse_acknowledgement(wrong)
    with pytest.raises(ValueError, match="too much"):
        Acknowledgement(EPOCH, {f"2026-11-{number:03}": {} for number in range(1, MAX_SHARDS + 2)}).encode()

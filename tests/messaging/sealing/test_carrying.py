"""What engines seal and open by hand: what waits, what is refused, and what goes out as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nacl.signing import SigningKey

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions.presence import PRESENCES
from sublet.messaging.ports.network import Sample
from sublet.messaging.ports.outbox import Outgoing
from sublet.messaging.schema.datatypes import QOS_LOW
from sublet.messaging.sealing import carrying
from sublet.messaging.sealing.carrying import Opened
from sublet.messaging.sealing.room_seals import statements_doc
from sublet.messaging.writing.writing import MAX_ENTRY_BYTES
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.sealing import envelope as sealing
from sublet.protocol.ezagent.sealing.statements import MAX_STATEMENT_BYTES
from sublet.protocol.ezagent.sealing.wire import device_id
from support.rooms import Peer, peers, shared_room

PLANTED = "the planted words"


def carried(peer: Peer) -> list[Outgoing]:
    """Return what goes out of a peer, as the owner of its engine does it."""
    engine = peer.engine
    found = engine.carrying.sealed(engine.audience.addressed(engine.outbox.take()))
    if engine.seals.turn():
        engine.commit()
    return found + engine.carrying.sealed(engine.audience.addressed(engine.outbox.take()))


def sample(item: Outgoing) -> Sample:
    return Sample(item.key, item.payload, item.attachment)


def give(items: list[Outgoing], *to: Peer) -> None:
    for peer in to:
        for item in items:
            peer.engine.intake.take(peer.engine.carrying.opened(sample(item)).arrivals)


def sealed_room(*members: Peer) -> str:
    room = shared_room(*members)
    members[0].do("room.update_config", room_id=room, changes={"encryption": "members"})
    give(carried(members[0]), *members[1:])
    return room


def test_what_is_said_is_sealed_and_opens_at_members() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice, bob)
    alice.do("message.send", room_id=room, body=PLANTED)
    out = carried(alice)
    assert [sealing.is_sealed(item.payload) for item in out] == [True]
    assert PLANTED.encode() not in out[0].payload + out[0].attachment
    give(out, bob)
    assert bob.bodies(room) == [PLANTED]


def test_a_clients_sealed_log_goes_on_from_its_head() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice, bob)
    found = []
    for body in ("1", "2"):
        alice.do("message.send", room_id=room, body=body)
        found += [sealing.unpack(item.payload) for item in carried(alice)]
    first, second = found
    assert second.header.place.head == first.head_after()
    assert second.header.place.start == first.header.place.end
    assert second.header.place.client == alice.client


def test_what_can_not_be_sealed_yet_waits_and_never_goes_out_as_it_is() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    alice.do("room.update_config", room_id=room, changes={"encryption": "members"})
    alice.do("message.send", room_id=room, body=PLANTED)
    engine = alice.engine
    assert engine.carrying.sealed(engine.audience.addressed(engine.outbox.take())) == []
    out = carried(alice)
    assert [item.key.rpartition("/ext/")[2] for item in out[:1]] == ["sealing/updates"]
    assert all(sealing.is_sealed(item.payload) for item in out[1:])
    assert len(out) == 3
    give(out, bob)
    assert bob.bodies(room) == [PLANTED]


def test_what_waits_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrying, "MAX_WAITING_BYTES", 4_096)
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    alice.do("room.update_config", room_id=room, changes={"encryption": "members"})
    for number in range(20):
        alice.do("message.send", room_id=room, body=f"{number} " + "x" * 500)
        assert alice.engine.carrying.sealed(alice.engine.outbox.take()) == []
    assert 2 < len(carried(alice)) < 12


def forged(room: str, signer: SigningKey, epoch: bytes, document: str | None = None) -> Sample:
    """Return an update that somebody has sealed under a key of its own."""
    header = sealing.Header(
        device_id(bytes(signer.verify_key)), document or doc_id("config", room_id=room), epoch, sealing.Place(1, 0, 1)
    )
    made = sealing.seal(signer, b"\1" * 32, header, b"")
    return Sample(f"{header.document}/updates", made.raw, b"")


def test_what_a_stranger_seals_is_refused_and_nothing_is_asked_for() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice, bob)
    sent = forged(room, SigningKey(b"\7" * 32), b"\1" * 16)
    assert bob.engine.carrying.opened(sent) == Opened()
    raw = bytearray(forged(room, alice.entity.key, b"\1" * 16).payload)
    raw[-1] ^= 1
    assert bob.engine.carrying.opened(Sample(sent.key, bytes(raw), b"")) == Opened()
    assert bob.refused() == {"unknown_signer": 1, "bad_signature": 1}


def test_what_a_member_seals_under_a_key_that_is_not_here_is_asked_for() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice, bob)
    opened = bob.engine.carrying.opened(forged(room, alice.entity.key, b"\1" * 16))
    assert opened == Opened(wanted=(doc_id("config", room_id=room), statements_doc(room)))


def test_what_is_sealed_wrongly_under_the_rooms_key_is_refused() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice, bob)
    found = alice.engine.seals.writing_key(room)
    assert found is not None
    epoch, key = found
    own = device_id(bytes(alice.entity.key.verify_key))
    config = doc_id("config", room_id=room)
    envelope = seal(alice.entity.key, alice.id, config, 1, b"\0\0").raw
    header = sealing.Header(own, config, epoch, sealing.Place(1, 0, 1))
    for plain in (
        b"no bundle",
        encode_bundle([]),
        encode_bundle([(RecordKind.ENVELOPE, envelope)]),
        encode_bundle([(RecordKind.ENVELOPE, b"none")]),
    ):
        made = sealing.seal(alice.entity.key, key, header, plain)
        assert bob.engine.carrying.opened(Sample(f"{config}/updates", made.raw, b"")) == Opened()
    passing = replace(header, document=doc_id("delivery", room_id=room), place=sealing.PASSING)
    made = sealing.seal(alice.entity.key, key, passing, encode_bundle([(RecordKind.ENVELOPE, envelope)]))
    with pytest.raises(Refused):
        bob.engine.carrying.opened_bundle(made.raw)
    for garbage in (b"\x81", b"\x81" + bytes(200), made.raw[:-5]):
        assert bob.engine.carrying.opened(Sample(f"{config}/updates", garbage, b"")) == Opened()


def test_an_acknowledgement_is_sealed_and_opened_as_a_bundle() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice, bob)
    key = doc_id("delivery", room_id=room)
    envelope = seal(alice.entity.key, alice.id, key, 1, b"acknowledged").raw
    bundle = encode_bundle([(RecordKind.ENVELOPE, envelope)])
    (item,) = alice.engine.carrying.sealed([Outgoing(key, bundle, b"", QOS_LOW)])
    assert sealing.is_sealed(item.payload)
    assert bob.engine.carrying.opened_bundle(item.payload) == bundle
    assert bob.engine.carrying.opened_bundle(bundle) == bundle


def test_in_a_room_that_anybody_may_look_at_the_config_is_not_sealed() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob, policy="open")
    alice.do("room.update_config", room_id=room, changes={"encryption": "members"})
    out = carried(alice)
    assert not any(sealing.is_sealed(item.payload) for item in out)
    give(out, bob)
    alice.do("message.send", room_id=room, body=PLANTED)
    assert [sealing.is_sealed(item.payload) for item in carried(alice)] == [True]


def test_a_removal_is_heard_by_who_is_removed_and_nothing_after_it() -> None:
    alice, bob, carol = peers("alice", "bob", "carol")
    room = sealed_room(alice, bob, carol)
    alice.do("room.kick", room_id=room, entity=carol.id)
    give(carried(alice), bob, carol)
    assert carol.id not in carol.engine.rooms.state(room).members()
    for one in (alice, bob):
        one.do("message.send", room_id=room, body=PLANTED)
        out = carried(one)
        give(out, alice if one is bob else bob)
        for item in out:
            assert carol.engine.carrying.opened(sample(item)).arrivals == ()
    assert bob.bodies(room) == alice.bodies(room) == [PLANTED, PLANTED]


def test_who_has_no_key_speaks_for_itself_as_it_is() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice)
    bob.engine.here.want(room)
    bob.catch_up(alice, room)
    alice.do("room.update_config", room_id=room, changes={"membership.policy": "knock"})
    bob.catch_up(alice, room)
    bob.do("room.knock", room_id=room, text="let me in")
    (item,) = carried(bob)
    assert not sealing.is_sealed(item.payload)


def test_keys_are_read_again_from_what_was_said_after_a_commit_that_failed() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice, bob)
    before = alice.engine.seals.writing_key(room)
    alice.engine.forget()
    assert alice.engine.seals.writing_key(room) == before is not None


def test_a_room_that_is_forgotten_leaves_no_keys() -> None:
    alice, bob = peers("alice", "bob")
    room = sealed_room(alice, bob)
    alice.engine.forget_room(room)
    assert alice.engine.seals.writing_key(room) is None


def test_what_is_said_in_passing_is_sealed_and_heard() -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, PRESENCES))
    room = sealed_room(alice, bob)
    alice.engine.ephemeral.say(alice.id, room, {"entity_id": alice.id, "status": PLANTED})
    (item,) = carried(alice)
    assert sealing.is_sealed(item.payload)
    assert PLANTED.encode() not in item.payload
    give([item], bob)
    said = bob.engine.ephemeral.said(room, alice.id)
    assert said is not None
    assert said.value["status"] == PLANTED


def test_the_longest_statement_fits_into_an_element() -> None:
    assert 4 * (MAX_STATEMENT_BYTES + 2) // 3 + 512 < MAX_ENTRY_BYTES

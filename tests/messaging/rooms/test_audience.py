"""Which daemons hear what is published, and which may answer."""

from __future__ import annotations

import pytest

from sublet.messaging.ports.outbox import Outgoing
from sublet.messaging.rooms import audience
from sublet.messaging.schema.datatypes import QOS_DATA
from sublet.protocol.ezagent.blob import PieceRequest, encode_wanted
from sublet.protocol.ezagent.ids import entity_domain
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import Peer, peers, shared_room


def of(*members: Peer) -> frozenset[str]:
    return frozenset(entity_domain(member.id) for member in members)


def config(room: str) -> str:
    return f"{doc_id('config', room_id=room)}/updates"


def test_members_hear_what_is_published_of_a_room_and_are_asked_about_it() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room, other = shared_room(alice, bob), shared_room(alice, eve)
    audience = alice.engine.audience
    for kind in ("delivery", "root"):
        name = doc_id(kind, room_id=room)
        assert audience.hears(name) == audience.answers(name, b"") == of(alice, bob)
    assert audience.hears(config(room)) == of(alice, bob)
    assert audience.answers(f"{doc_id('config', room_id=other)}/state", b"") == of(alice, eve)
    assert audience.answers(doc_id("blob", hash="0" * 64), encode_wanted(PieceRequest(room, 0))) == of(alice, bob)


def test_one_entity_is_asked_about_itself_alone() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob, eve)
    audience = alice.engine.audience
    for name in (
        doc_id("challenge", entity_id=bob.id),
        f"{doc_id('inbox', entity_id=bob.id)}/updates",
        doc_id("ephemeral", room_id=room, ext_id="awareness", entity_id=bob.id),
        f"{doc_id('draft', room_id=room, entity_id=bob.id)}/state",
    ):
        assert audience.answers(name, b"") == of(bob)


def test_whoever_shares_a_room_with_an_entity_hears_what_it_keeps_for_all() -> None:
    alice, bob, eve, carol = peers("alice", "bob", "eve", "carol")
    shared_room(alice, bob)
    shared_room(alice, eve)
    shared_room(alice, carol)
    name = f"{doc_id('profile', entity_id=bob.id)}/updates"
    assert alice.engine.audience.hears(name) == of(alice, bob)
    assert alice.engine.audience.hears(f"{doc_id('profile', entity_id=alice.id)}/updates") == of(alice, bob, eve, carol)


def test_anybody_may_know_of_a_room_that_is_looked_for_a_stranger_or_our_own_rooms() -> None:
    alice, bob = peers("alice", "bob")
    room = alice.do("room.create", name="r")["room_id"]
    audience = bob.engine.audience
    assert audience.answers(f"{doc_id('config', room_id=room)}/state", b"") is None
    assert audience.answers(doc_id("pubkey", entity_id=alice.id), b"") is None
    assert audience.answers(doc_id("inbox", entity_id=bob.id), b"") is None


@pytest.mark.parametrize(("policy", "for_all"), [("invite", False), ("knock", True), ("open", True)])
def test_the_config_of_a_room_that_anybody_may_look_at_is_for_all(policy: str, *, for_all: bool) -> None:
    (alice,) = peers("alice")
    room = alice.do("room.create", name="r", policy=policy)["room_id"]
    assert alice.engine.audience.hears(config(room)) == (None if for_all else of(alice))


def test_who_is_removed_hears_of_that_once_and_who_leaves_is_still_asked() -> None:
    alice, bob, carol = peers("alice", "bob", "carol")
    room = shared_room(alice, bob, carol)
    audience = alice.engine.audience
    alice.published()
    alice.do("room.kick", room_id=room, entity=bob.id)
    alice.do("room.update_config", room_id=room, changes={"name": "later in the same batch"})
    assert {item.to for item in audience.addressed(alice.published())} == {of(alice, bob, carol)}
    alice.do("room.update_config", room_id=room, changes={"name": "later"})
    assert {item.to for item in audience.addressed(alice.published())} == {of(alice, carol)}
    assert audience.answers(f"{doc_id('config', room_id=room)}/state", b"") == of(alice, carol)
    carol.catch_up(alice, room)
    carol.do("room.leave", room_id=room)
    alice.hear(carol.published())
    assert audience.hears(doc_id("delivery", room_id=room)) == of(alice)
    assert audience.answers(f"{doc_id('config', room_id=room)}/state", b"") == of(alice, carol)


def test_what_is_no_key_of_the_protocol_goes_to_nobody() -> None:
    (alice,) = peers("alice")
    [item] = alice.engine.audience.addressed([Outgoing("ezagent/no key", b"", b"", QOS_DATA)])
    assert item.to == frozenset()
    assert alice.engine.audience.answers("ezagent/no key", b"") == frozenset()
    assert of(alice) == {entity_domain(alice.id)}


def test_of_rooms_without_end_a_bounded_number_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audience, "MAX_ROOMS", 2)
    alice, bob = peers("alice", "bob")
    rooms = [shared_room(alice, bob) for _ in range(4)]
    for _ in range(2):
        assert [alice.engine.audience.hears(f"ezagent/{room}/root") for room in rooms] == [of(alice, bob)] * 4
    assert len(alice.engine.audience._told) == 2

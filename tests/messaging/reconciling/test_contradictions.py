"""Members whose signed roots contradict each other, or what they show: found, told once, and honest ones never are."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sublet.messaging.reconciling.contradictions import CONTRADICTED_EVENT, MAX_KEPT, ROLLED_BACK_EVENT, Lie
from sublet.messaging.syncing import answers
from sublet.messaging.syncing.stated import take_root
from sublet.protocol.ezagent.bundle import RecordKind, encode_bundle
from sublet.protocol.ezagent.digest_tree import Node
from sublet.protocol.ezagent.envelope import seal
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.reconciliation import Differing, NodesAsked, decode_asked, encode_differing, encode_root
from support.reconciled import reconcile, stated
from support.rooms import Peer, peers, shared_room


def told(peer: Peer) -> list[tuple[str, str]]:
    """Return whom a peer was told of, and how."""
    kinds = (CONTRADICTED_EVENT, ROLLED_BACK_EVENT)
    return [
        (str(event.data["entity"]), str(event.data.get("how", "rolled_back")))
        for event in peer.engine.events.since(0)
        if event.kind in kinds
    ]


def noted(peer: Peer) -> dict[Any, Lie]:
    """Return a mapping that holds, from now on, what the status tells."""
    found: dict[Any, Lie] = {}

    def note(now: dict[Any, Lie]) -> None:
        found.clear()
        found.update(now)

    peer.engine.roots.contradictions.listeners.append(note)
    return found


def signed(peer: Peer, room: str, node: Node) -> bytes:
    """Return a root as a member signs it, whatever it has."""
    envelope = seal(peer.entity.key, peer.id, doc_id("root", room_id=room), peer.clock(), encode_root(node))
    return encode_bundle([(RecordKind.IDENTITY, peer.entity.record.encode()), (RecordKind.ROOT, envelope.raw)])


def test_who_signs_for_more_than_it_shows_is_told_of_once_and_no_longer_once_it_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bob, eve = peers("bob", "eve")
    room = shared_room(bob, eve)
    status = noted(bob)
    eve.do("message.send", room_id=room, body="something that she keeps")
    honest = answers.tree

    def hiding(engine: Any, room_id: str, body: bytes) -> bytes | None:
        asked = decode_asked(body)
        if engine is not eve.engine or not isinstance(asked, NodesAsked):
            return honest(engine, room_id, body)
        return encode_differing([Differing() for _ in asked.below])

    monkeypatch.setattr("support.reconciled.tree", hiding)
    for number in range(2):
        eve.do("message.send", room_id=room, body=f"more {number}")
        reconcile(bob, eve, room)
        assert told(bob) == [(eve.id, "withheld")]
        assert status == {(room, eve.id): Lie.WITHHELD}
    monkeypatch.setattr("support.reconciled.tree", honest)
    eve.do("message.send", room_id=room, body="once more")
    reconcile(bob, eve, room)
    assert status == {}
    assert len(bob.bodies(room)) == 4


def test_two_states_that_exclude_each_other_are_found_by_whoever_hears_of_both() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob, eve)
    ours = alice.store.tree.root(room)
    status = noted(bob)
    take_root(alice.engine, room, signed(eve, room, Node(ours.count, ours.clocks + 5, 1)))
    eve.clock.now_ms += 1
    take_root(bob.engine, room, signed(eve, room, Node(ours.count, ours.clocks + 5, 2)))
    assert told(alice) == told(bob) == []
    stated(bob, alice, room)
    assert told(bob) == [], "equal rooms pass nothing on"
    alice.do("message.send", room_id=room, body="x")
    stated(bob, alice, room)
    assert told(bob) == [(eve.id, "forked")]
    stated(bob, alice, room)
    assert told(bob) == [(eve.id, "forked")]
    assert status == {(room, eve.id): Lie.FORKED}


def test_who_says_less_to_one_than_to_another_is_found_and_told_of_until_it_says_as_much_again() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob, eve)
    ours = alice.store.tree.root(room)
    status = noted(alice)
    take_root(alice.engine, room, signed(eve, room, Node(ours.count, ours.clocks + 5, 1)))
    eve.clock.now_ms += 1
    take_root(bob.engine, room, signed(eve, room, Node(ours.count, ours.clocks + 3, 2)))
    bob.do("message.send", room_id=room, body="x")
    stated(alice, bob, room)
    assert told(alice) == [(eve.id, "rolled_back")]
    assert status == {(room, eve.id): Lie.ROLLED_BACK}
    eve.clock.now_ms += 1
    take_root(alice.engine, room, signed(eve, room, Node(ours.count, ours.clocks + 5, 1)))
    assert status == {}


def test_a_root_of_earlier_accuses_nobody_whose_clock_was_set_back() -> None:
    alice, eve = peers("alice", "eve")
    room = shared_room(alice, eve)
    ours = alice.store.tree.root(room)
    take_root(alice.engine, room, signed(eve, room, Node(ours.count, ours.clocks + 3, 1)))
    eve.clock.now_ms -= 60_000
    take_root(alice.engine, room, signed(eve, room, Node(ours.count, ours.clocks + 5, 2)))
    assert told(alice) == []


@pytest.mark.parametrize("seed", range(12))
def test_honest_members_are_never_told_of_whatever_they_miss_of_each_other(seed: int) -> None:
    random = Random(seed)
    members = peers("alice", "bob", "carol")
    room = shared_room(*members)
    sent = 0
    for _ in range(60):
        one, other = random.sample(members, 2)
        one.clock.now_ms += random.randrange(2_000)
        match random.randrange(5):
            case 0:
                out = one.published()
                other.hear(random.sample(out, len(out) // 2))  # some of it is lost, and the rest in another order
            case 1 | 2:
                reconcile(one, other, room, random)
            case _:
                one.do("message.send", room_id=room, body=str(sent))
                sent += 1
    for _ in range(3):
        for one in members:
            for other in members:
                if one is not other:
                    reconcile(one, other, room, random)
    assert len({(peer.store.tree.root(room).count, peer.store.tree.root(room).digest) for peer in members}) == 1
    assert [told(peer) for peer in members] == [[], [], []]


def test_of_many_the_oldest_is_told_no_longer() -> None:
    alice, eve = peers("alice", "eve")
    status = noted(alice)
    contradictions = alice.engine.roots.contradictions
    for number in range(MAX_KEPT + 1):
        contradictions.shown(f"room {number}", eve.id, Node(1, 2, 3), Node())
    assert len(status) == MAX_KEPT
    assert ("room 0", eve.id) not in status

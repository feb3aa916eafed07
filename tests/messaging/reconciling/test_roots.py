"""What members sign that they have: whose statement is taken, and what goes along with ours."""

from __future__ import annotations

import pytest

from messaging.reconciling.test_contradictions import signed
from sublet.messaging.reconciling.roots import MAX_AHEAD_MS, MAX_PASSED_ON, Theirs
from sublet.protocol.ezagent.bundle import RecordKind, decode_bundle
from sublet.protocol.ezagent.digest_tree import Node
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refusal, Refused
from support.reconciled import stated
from support.rooms import Peer, peers, shared_room

ROOT = Node(1, 2, 3)


def roots_of(raw: bytes | None) -> list[str]:
    """Return who has signed the roots in a statement, in their order."""
    assert raw is not None
    return [unpack(one).signer for one in decode_bundle(raw).of(RecordKind.ROOT)]


def root_of(peer: Peer, room: str, node: Node = ROOT) -> bytes:
    """Return the root alone that somebody signs."""
    (raw,) = decode_bundle(signed(peer, room, node)).of(RecordKind.ROOT)
    return raw


def test_whoever_is_in_a_room_states_it_and_nobody_else() -> None:
    alice, bob, carol = peers("alice", "bob", "carol")
    room = shared_room(alice, bob)
    assert alice.engine.roots.speaker(room) == alice.id
    assert roots_of(alice.engine.roots.statement(room)) == [alice.id]
    assert carol.engine.roots.speaker(room) is None
    assert carol.engine.roots.statement(room) is None


def test_what_others_have_signed_goes_to_who_has_something_else_and_not_what_they_have_signed_themselves() -> None:
    members = peers("alice", *(f"m{number}" for number in range(MAX_PASSED_ON + 2)))
    alice, bob, *others = members
    room = shared_room(*members)
    for other in (bob, *others):
        other.clock.now_ms += 1
        alice.engine.roots.take(room, root_of(other, room))
    equal = bob.engine.roots.statement(room)
    assert equal is not None
    assert roots_of(alice.engine.roots.statement(room, equal)) == [alice.id]
    alice.do("message.send", room_id=room, body="x")
    passed = roots_of(alice.engine.roots.statement(room, equal))
    assert passed[0] == alice.id
    assert len(passed) == 1 + MAX_PASSED_ON
    assert set(passed[1:]) < {other.id for other in others}
    assert roots_of(alice.engine.roots.statement(room, b"junk")) == [alice.id]


def test_a_root_counts_from_a_member_for_its_room_and_its_time() -> None:
    alice, bob, carol = peers("alice", "bob", "carol")
    room, other = shared_room(alice, bob), shared_room(alice, bob)
    alice.engine.keyring.learn(carol.entity.record.encode())
    for raw in (root_of(bob, other), root_of(carol, room)):
        with pytest.raises(Refused):
            alice.engine.roots.take(room, raw)
    with pytest.raises(Refused) as refused:
        alice.engine.roots.take(room, root_of(carol, room))
    assert refused.value.refusal is Refusal.UNKNOWN_SIGNER
    bob.clock.now_ms = alice.clock.now_ms + MAX_AHEAD_MS
    early = root_of(bob, room)
    bob.clock.now_ms += 1_000
    late = root_of(bob, room, Node(1, 2, 4))
    assert alice.engine.roots.take(room, early) == Theirs(bob.id, ROOT)
    with pytest.raises(Refused):
        alice.engine.roots.take(room, late)


def test_with_whom_all_was_taken_nothing_is_asked_until_one_of_both_roots_is_another() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    theirs = stated(alice, bob, room)
    assert theirs is not None
    assert not alice.engine.roots.differs(room, theirs)
    apart = Theirs(bob.id, theirs.node + Node(1, 1, 1))
    assert alice.engine.roots.differs(room, apart)
    alice.engine.roots.settle(room, apart)
    assert not alice.engine.roots.differs(room, apart)
    assert alice.engine.roots.differs(room, Theirs(bob.id, apart.node + Node(0, 1, 1)))
    alice.do("message.send", room_id=room, body="x")
    assert alice.engine.roots.differs(room, apart)

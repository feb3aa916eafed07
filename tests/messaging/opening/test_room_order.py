"""A room is walked in its order across shards, and only the shards that a walk comes to are opened."""

from __future__ import annotations

import pytest

from attacks.kit.odd_fields import OddMember
from sublet.messaging.opening.room_order import RoomOrder, place_of
from support.rooms import NOW_MS, peers, shared_room


def test_a_walk_opens_no_more_shards_than_it_comes_to() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    writer = OddMember(bob, room)
    shards = ["2026-11", "2026-12", "2027-01", "2027-02"]
    for number, shard in enumerate(shards):
        sent = [writer.ref({}, shard, NOW_MS + 1_000 * number + one) for one in range(5)]
        assert alice.engine.intake.take(sent).accepted == 5
    alice.engine.documents.forget()
    order = RoomOrder(alice.store, alice.engine.documents)
    walk = order.backwards(room)
    found = [next(walk) for _ in range(5)]
    opened = [name for name in alice.engine.documents._open if "/index/" in name]
    assert [name.rpartition("/")[2] for name in opened] == ["2027-02"]
    place = place_of(*found[-1])
    assert [node.entry_id for _, node in order.forwards(room, place)] == [node.entry_id for _, node in found[-2::-1]]
    assert len(list(order.backwards(room, place))) == 15
    assert order.last("another room") is None


@pytest.mark.parametrize("step", [-1, 1])
def test_shards_that_overlap_are_merged(step: int) -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    writer = OddMember(bob, room)
    times = list(range(20))[::step]
    alice.engine.intake.take([writer.ref({}, ("2026-11", "2026-12")[at % 2], NOW_MS + at) for at in times])
    ranks = [node.rank for _, node in alice.engine.order.forwards(room)]
    assert ranks == sorted(ranks)
    assert len(ranks) == 20

"""A member fills nobody's disk, and what the others write is shown everywhere all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from messaging.quotas.test_quotas import Writer, log_size
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.quotas import usage
from sublet.protocol.errors import LocalCode, SubletError
from sublet.protocol.ezagent.content import canonical, content_object, sign_content
from sublet.protocol.ezagent.ids import entity_domain
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import Peer, peers, shared_room

LIMIT = 200_000


def everything_of(peer: Peer) -> list[Arrival]:
    return [Arrival(peer.store.envelope(seq)) for seq in range(1, peer.store.last_seq() + 1)]


def test_a_members_flood_ends_at_a_bound_and_hides_nothing_that_others_build_on_it() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob, eve)
    alice.engine.usage.limit = LIMIT  # bob keeps more
    writer = Writer(eve, room)
    flood = [Arrival(writer.next(2_000)) for _ in range(150)]
    bob.engine.intake.take(flood[:120])
    bob.do("message.send", room_id=room, body="stands behind the flood")
    said = bob.published()
    bob.engine.intake.take(flood[120:])
    alice.engine.intake.take(flood)
    assert alice.refused()["quota"] > 30
    assert log_size(alice) < LIMIT + 10_000
    name = doc_id("index", room_id=room, shard_id="2026-11")
    assert alice.engine.quotas.passed_over(name) == {eve.client: 150 * 8}, "what was refused is not asked for again"
    alice.hear(said)
    assert alice.bodies(room)[-1] is None, "it waits for what it stands behind"
    alice.engine.intake.take(everything_of(bob))
    assert "stands behind the flood" in alice.bodies(room)
    assert log_size(alice) < log_size(bob) - 20 * 2_000, "and no more of it is taken than that"
    alice.do("message.send", room_id=room, body="goes on")
    bob.hear(alice.published())
    ours = {"stands behind the flood", "goes on"}
    shown = [[body for body in peer.bodies(room) if body in ours] for peer in (alice, bob)]
    assert shown[0] == shown[1]
    assert set(shown[0]) == ours
    # who may change the room still does, and whoever is removed is asked for no more
    alice.do("room.kick", room_id=room, entity=eve.id)
    bob.hear(alice.published())
    assert alice.engine.rooms.state(room).members() == bob.engine.rooms.state(room).members()


def test_contents_of_what_waits_forever_count_too() -> None:
    alice, eve = peers("alice", "eve")
    room = shared_room(alice, eve)
    alice.engine.usage.limit = LIMIT
    writer = Writer(eve, room)
    writer.next()  # never sent: all that follows waits
    for number in range(40):
        body = f"{number}" + "x" * 20_000
        raw = canonical(
            sign_content(content_object(eve.id, body, "text/plain", "2026-11-29T00:00:00.000Z", []), eve.entity.key)
        )
        alice.engine.intake.take([Arrival(writer.next(content=raw), (raw,))])
    (kept,) = alice.store._db.execute("SELECT sum(length(raw)) FROM contents").fetchone()
    assert LIMIT / 2 < kept < LIMIT + 30_000


def test_who_reaches_the_bound_is_told_before_anything_is_written() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    alice.engine.usage.limit = LIMIT
    while alice.engine.usage.in_room(room, alice.id) < LIMIT:
        alice.do("message.send", room_id=room, body="x" * 20_000)
    with pytest.raises(SubletError, match="megabytes_of_daemon") as refused:
        alice.do("message.send", room_id=room, body="one more")
    assert refused.value.code == LocalCode.CONFLICT
    bob.hear(alice.published())
    assert bob.refused() == {}
    alice.do("room.kick", room_id=room, entity=bob.id)
    alice.do("message.send", room_id=alice.do("room.create", name="another")["room_id"], body="goes on there")


def test_counts_are_known_after_a_start_and_forks_do_not_count_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "SAVED_EVERY_BYTES", 10_000)
    alice = Peer("alice", 1, tmp_path / "alice.db")
    bob = Peer("bob", 2)
    alice.meet(bob)
    bob.meet(alice)
    room = shared_room(alice, bob)
    writer = Writer(bob, room)
    alice.engine.intake.take([Arrival(writer.next(1_000)) for _ in range(50)])
    domain = entity_domain(bob.id)
    total = alice.engine.usage.total(domain)
    assert total > 50_000
    assert (
        total - 10_000
        < usage.DiskUsage(alice.store, usage.DEFAULT_DAEMON_BYTES, alice.engine.keyring.home).total(domain)
        <= total
    )
    other = Peer("bob", 3)
    forked = Writer(other, room)
    alice.engine.intake.take([Arrival(forked.next(10))])
    two = Writer(other, room).next(20)
    alice.engine.intake.take([Arrival(writer.next(1_000))])
    before = alice.engine.usage.total(domain)
    alice.engine.intake.take([Arrival(two)])
    assert alice.refused()["equivocation"] == 1
    assert alice.engine.usage.total(domain) <= before

"""Members whose clocks are wrong, or who say so: their messages hide nobody's, and stand alike on all replicas."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from attacks.kit.odd_fields import OddMember
from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.opening import shards
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.order import AFTER
from sublet.protocol.ezagent.ref_shape import LAST_MS
from sublet.protocol.ezagent.yjs.update import ItemId
from support.rooms import NOW_MS, Peer, peers, shared_room

ALL = (*BUILT_INS, *EXTENSIONS)
DAY_MS = 86_400_000


def index(room: str, shard: str) -> str:
    return doc_id("index", room_id=room, shard_id=shard)


def said(peer: Peer, room: str) -> list[str | None]:
    return [ref.get("body") for ref in peer.do("timeline.list", room_id=room, limit=200, peek=True)["refs"]]


def order(peer: Peer, room: str) -> list[str]:
    found: list[str] = []
    before = None
    while True:
        page = peer.do("timeline.list", room_id=room, limit=7, before=before, peek=True)
        found = [ref["ref_id"] for ref in page["refs"]] + found
        before = page["next_cursor"]
        if before is None:
            return found


@pytest.mark.parametrize("shard", ["2027-01", "2026-12-000"[:7], "2999-12"])
def test_who_writes_into_months_to_come_does_not_stay_last(shard: str) -> None:
    alice, bob, mallory = peers("alice", "bob", "mallory", declarations=ALL)
    room = shared_room(alice, bob, mallory)
    evil = OddMember(mallory, room)
    for number in range(60):
        arrival = evil.ref({}, shard, NOW_MS + 60 * DAY_MS + number)
        for one in (alice, bob):
            assert one.engine.intake.take([arrival]).accepted == 1
    for turn in range(6):
        speaker, other = ((alice, bob), (bob, alice))[turn % 2]
        speaker.clock.now_ms += 1_000
        speaker.do("message.send", room_id=room, body=f"honest {turn}")
        other.hear(speaker.published())
        assert said(speaker, room)[-1] == said(other, room)[-1] == f"honest {turn}"
    alice.do("room.kick", room_id=room, entity=mallory.id)
    bob.hear(alice.published())
    bob.do("message.send", room_id=room, body="after the kick")
    alice.hear(bob.published())
    assert said(alice, room)[-2:] == said(bob, room)[-2:] == ["honest 5", "after the kick"]
    assert order(alice, room) == order(bob, room)


@pytest.mark.parametrize("days", [-400, -40, 40, 400])
def test_a_message_of_a_wrong_clock_stands_behind_what_its_writer_had_seen(days: int) -> None:
    alice, bob = peers("alice", "bob", declarations=ALL)
    room = shared_room(alice, bob)
    bob.clock.now_ms += days * DAY_MS
    for turn in range(4):
        speaker, other = ((alice, bob), (bob, alice))[turn % 2]
        speaker.do("message.send", room_id=room, body=f"{turn}")
        other.hear(speaker.published())
        assert said(alice, room) == said(bob, room) == [str(one) for one in range(turn + 1)]
    bob.clock.now_ms = alice.clock.now_ms = NOW_MS + 5_000  # it is right again
    for turn in range(4, 8):
        speaker, other = ((alice, bob), (bob, alice))[turn % 2]
        speaker.do("message.send", room_id=room, body=f"{turn}")
        other.hear(speaker.published())
    assert said(alice, room) == said(bob, room) == [str(one) for one in range(8)]


@pytest.mark.parametrize(("seed", "forks"), [*((seed, 0.0) for seed in range(5)), *((seed, 0.2) for seed in range(5))])
def test_whatever_came_in_whichever_order_all_show_one_order(
    seed: int, forks: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Property, with real engines: hostile times and shards, forks, wrong clocks, shuffled arrival, small shards."""
    monkeypatch.setattr(shards, "REFS_PER_SHARD", 6)
    choice = random.Random(seed)
    members = peers("alice", "bob", "carol", declarations=ALL)
    mallory, reader, late = peers("mallory", "reader", "late", declarations=ALL)
    everybody = [*members, mallory, reader, late]
    for one, other in itertools.permutations(everybody, 2):
        one.meet(other)
    room = shared_room(*everybody)
    evil = OddMember(mallory, room)
    members[1].clock.now_ms += choice.choice([-100, 40]) * DAY_MS
    sent: list[Any] = []
    for _ in range(60):
        for one in everybody:
            one.clock.now_ms += choice.randint(0, 5_000)
        turn = choice.random()
        if turn < 0.5:
            speaker = choice.choice(members)
            speaker.do("message.send", room_id=room, body="x")
            fresh = [item.payload for item in speaker.published()]
        else:
            shard = choice.choice(["2026-11", "2026-12", "2027-03", "2026-11-001"])
            known = [node.id for node in mallory.engine.documents.open(index(room, shard)).elements.chain]
            last: ItemId | None = choice.choice(known) if known and choice.random() < 0.5 else None
            at_ms = choice.choice([NOW_MS, NOW_MS + 90 * DAY_MS, LAST_MS])
            more = {AFTER: f"2026-11/{members[0].client}/0"} if choice.random() < 0.3 else {}
            if choice.random() < forks:
                evil.fork(index(room, shard))
            fresh = [evil.ref(more, shard, at_ms, last).envelope]
            mallory.engine.intake.take([arrival_of(raw) for raw in fresh])
        sent += fresh
        for one in members:
            if choice.random() < 0.6:
                one.engine.intake.take([arrival_of(raw) for raw in choice.sample(sent, len(sent))])
    for one in everybody:
        while one.engine.intake.take([arrival_of(raw) for raw in choice.sample(sent, len(sent))]).accepted:
            pass  # a shard that nobody has begun yet is asked for again
    orders = [order(one, room) for one in everybody]
    assert all(found == orders[0] for found in orders), [len(found) for found in orders]
    assert len(orders[0]) > 10
    late.engine.documents.forget()  # as after a restart
    late.engine.order.forget()
    assert order(late, room) == orders[0]
    for one in members:
        one.do("message.send", room_id=room, body="the last word")
        assert said(one, room)[-1] == "the last word"


def arrival_of(raw: bytes) -> Any:
    from sublet.messaging.accepting.arrival import Arrival

    return Arrival(raw)


def test_a_ref_that_names_what_never_was_keeps_nobody_else_back() -> None:
    alice, bob, mallory = peers("alice", "bob", "mallory", declarations=ALL)
    room = shared_room(alice, bob, mallory)
    evil = OddMember(mallory, room)
    report = bob.engine.intake.take([evil.ref({AFTER: "2027-02/5/5"})])
    assert report.accepted == 0
    assert report.gaps == {index(room, "2027-02")}  # it is asked for
    assert bob.engine.intake.awaited.size > 0
    alice.do("message.send", room_id=room, body="goes on")
    bob.hear(alice.published())
    assert said(bob, room) == ["goes on"]


def test_what_waits_for_another_shard_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    from sublet.messaging.intake import awaited

    monkeypatch.setattr(awaited, "MAX_AWAITED_BYTES", 10_000)
    alice, bob, mallory = peers("alice", "bob", "mallory", declarations=ALL)
    room = shared_room(alice, bob, mallory)
    for number in range(100):
        evil = OddMember(mallory, room)
        evil._count = number
        bob.engine.intake.take([evil.ref({AFTER: f"2027-02/{number}/5"}, at_ms=NOW_MS + number)])
    assert bob.engine.intake.awaited.size <= 10_000
    assert bob.refused()["quota"] > 50


def test_nobody_stands_last_in_a_channel_a_thread_or_among_replies() -> None:
    alice, bob, mallory = peers("alice", "bob", "mallory", declarations=ALL)
    room, other = shared_room(alice, bob, mallory), shared_room(alice)
    root = alice.do("message.send", room_id=room, body="root")["ref_id"]
    bob.hear(alice.published())
    evil = OddMember(mallory, room)
    for number in range(40):
        ext = {"ext.channels": ["work"], "ext.thread": {"root": root}, "ext.reply_to": {"ref_id": root}}
        alice.engine.intake.take([evil.ref(ext, "2027-01", LAST_MS - number)])
    tags = {"channels": ["work"], "thread": root, "reply_to": root}
    mine = alice.do("message.send", room_id=room, body="mine", ext=tags)["ref_id"]
    assert alice.do("threads.list", room_id=room, root=root, limit=5)["refs"][-1]["ref_id"] == mine
    shown = next(ref for ref in alice.do("timeline.list", room_id=room, limit=200)["refs"] if ref["ref_id"] == root)
    assert shown["replies"][-1] == mine
    assert alice.do("channels.refs", channel="work", room_id=room, limit=5)["refs"][-1]["ref_id"] == mine
    alice.clock.now_ms += 60_000
    elsewhere = alice.do("message.send", room_id=other, body="elsewhere", ext={"channels": ["work"]})["ref_id"]
    assert alice.do("channels.refs", channel="work", limit=5)["refs"][-1]["ref_id"] == elsewhere
    page = alice.do("channels.refs", channel="work", room_id=room, limit=5, before=mine)
    assert mine not in [ref["ref_id"] for ref in page["refs"]]
    assert len(page["refs"]) == 5


def test_a_list_of_rooms_shows_what_was_said_last_and_no_time_to_come() -> None:
    alice, mallory = peers("alice", "mallory", declarations=ALL)
    room = shared_room(alice, mallory)
    alice.engine.intake.take([OddMember(mallory, room).ref({}, "2027-01", LAST_MS)])
    alice.clock.now_ms += 1_000
    alice.do("message.send", room_id=room, body="later")
    (listed,) = alice.do("room.list")
    alice.clock.now_ms += DAY_MS
    assert alice.do("room.list")[0]["last_activity"] == listed["last_activity"]

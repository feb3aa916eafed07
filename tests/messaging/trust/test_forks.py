"""A member who signs two updates for the same clocks: all replicas find out, show the same, and name who did it."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from attacks.kit.odd_fields import OddMember
from messaging.quotas.test_quotas import Writer
from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.documents.document import MAX_FORKS_OF_SIGNER
from sublet.messaging.ports.rows import Fork
from sublet.messaging.reconciling.contradictions import ROLLED_BACK_EVENT
from sublet.messaging.reconciling.roots import MAX_AHEAD_MS
from sublet.messaging.syncing.answers import state
from sublet.messaging.trust.forks import EQUIVOCATION_EVENT
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.bundle import MAX_BUNDLE_BYTES, Bundle, RecordKind, decode_bundle
from sublet.protocol.ezagent.envelope import unpack
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.vectors import closed
from support.reconciled import reconcile
from support.rooms import NOW_MS, Peer, peers, shared_room


def names(room: str) -> list[str]:
    return [doc_id("config", room_id=room), doc_id("index", room_id=room, shard_id="2026-11")]


def vector(peer: Peer, name: str) -> dict[int, int]:
    row = peer.store.find_document(name)
    if row is None:
        return {}
    clocks = {client: clock for client, (clock, _) in peer.store.clients(row.number).items()}
    passed = peer.engine.quotas.passed_over(name)
    return clocks | passed | {fork.client: closed(fork.clock) for fork in peer.store.trust.forks(row.number)}


def ask(peer: Peer, other: Peer, room: str) -> None:
    """Let a peer ask another for what it lacks, and reconcile with it."""
    for name in names(room):
        take(peer, room, state(other.engine, name, vector(peer, name)))
    reconcile(peer, other, room)


def take(peer: Peer, room: str, answer: bytes | None) -> None:
    if answer is not None:
        peer.engine.intake.take_bundle(room, decode_bundle(answer))


def all_ask(everyone: list[Peer], room: str) -> None:
    for _ in range(4):
        for peer in everyone:
            for other in everyone:
                if peer is not other:
                    ask(peer, other, room)


def seen(peer: Peer, room: str) -> tuple[Any, Any]:
    return peer.do("timeline.list", room_id=room, limit=200), peer.do("room.get", room_id=room)["config"]


def twin(peer: Peer, room: str) -> Peer:
    """Return a peer with the same key and client id, that has what the first one has."""
    other = Peer(peer.name, peer.nonce)
    for raw in peer.store.records().values():
        other.engine.intake.learn(raw)
    other.catch_up(peer, room)
    return other


def told(peer: Peer, kind: str) -> list[Any]:
    return [event.data["entity"] for event in peer.engine.events.since(0) if event.kind == kind]


def test_all_replicas_leave_out_what_is_forked_and_name_who_did_it() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob, eve)
    eve.do("message.send", room_id=room, body="before")
    first = eve.published()
    alice.hear(first)
    bob.hear(first)
    liar = twin(eve, room)
    eve.do("message.send", room_id=room, body="to alice")
    eve.do("message.send", room_id=room, body="and more")
    liar.do("message.send", room_id=room, body="to bob")
    alice.hear(eve.published())
    bob.hear(liar.published())
    alice.do("message.send", room_id=room, body="alice's")  # stands behind what Bob does not have
    bob.do("message.send", room_id=room, body="bob's")
    assert alice.bodies(room) == ["before", "to alice", "and more", "alice's"]
    assert bob.bodies(room) == ["before", "to bob", "bob's"]
    all_ask([alice, bob], room)
    assert sorted(str(body) for body in alice.bodies(room)) == ["alice's", "before", "bob's"]
    assert seen(alice, room) == seen(bob, room)
    assert told(alice, EQUIVOCATION_EVENT) == told(bob, EQUIVOCATION_EVENT) == [eve.id]
    eve.do("message.send", room_id=room, body="later")
    alice.hear(eve.published())
    assert "later" not in alice.bodies(room)
    assert alice.refused()["equivocation"] >= 1
    alice.do("message.send", room_id=room, body="goes on")
    bob.hear(alice.published())
    assert bob.bodies(room)[-1] == alice.bodies(room)[-1] == "goes on"


def test_who_joins_later_is_shown_the_proof(tmp_path: Path) -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    carol = Peer("carol", 9, tmp_path / "c.db")
    carol.meet(alice, bob, eve)
    alice.meet(carol)
    bob.meet(carol)
    room = shared_room(alice, bob, eve, carol)
    liar = twin(eve, room)
    eve.do("message.send", room_id=room, body="one")
    liar.do("message.send", room_id=room, body="other")
    carol.hear(eve.published())
    alice.hear(liar.published())
    bob.hear(alice.published())
    ask(alice, carol, room)  # Alice learns of both
    assert told(alice, EQUIVOCATION_EVENT) == [eve.id]
    ask(bob, alice, room)  # Bob had neither
    ask(carol, bob, room)  # and Carol one
    assert [peer.bodies(room) for peer in (alice, bob, carol)] == [[], [], []]
    before = carol.do("timeline.list", room_id=room)
    carol.store.close()
    carol.open()
    assert carol.do("timeline.list", room_id=room) == before
    late = eve.published()
    carol.hear(late)
    assert carol.bodies(room) == []


def test_a_fork_of_the_config_takes_back_what_stood_on_it() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob, eve)
    alice.do("room.invite", room_id=room, entity=eve.id, role="admin")
    out = alice.published()
    bob.hear(out)
    eve.hear(out)
    liar = twin(eve, room)
    eve.do("room.update_config", room_id=room, changes={"name": "one"})
    liar.do("room.kick", room_id=room, entity=bob.id)
    alice.hear(eve.published())
    bob.hear(liar.published())
    assert alice.do("room.get", room_id=room)["name"] == "one"
    with pytest.raises(SubletError, match="not a member"):
        bob.do("room.members", room_id=room)
    alice.do("room.update_config", room_id=room, changes={"timeline.max_refs_per_window": 9})
    for _ in range(3):
        for name in names(room):
            take(bob, room, state(alice.engine, name, {}))
            take(alice, room, state(bob.engine, name, {}))
    assert seen(alice, room) == seen(bob, room)
    assert bob.do("room.get", room_id=room)["name"] == "room"
    assert bob.do("room.get", room_id=room)["config"]["timeline"]["max_refs_per_window"] == 9
    assert bob.do("room.members", room_id=room)[bob.id] == "member"


@pytest.mark.parametrize("seed", range(20))
def test_replicas_agree_whatever_a_member_equivocates_about(seed: int) -> None:
    random = Random(seed)
    alice, bob, eve = honest = peers("alice", "bob", "eve")
    room = shared_room(*honest)
    alice.do("room.invite", room_id=room, entity=eve.id, role="admin")
    out = alice.published()
    bob.hear(out)
    eve.hear(out)
    liars = [eve, twin(eve, room)]
    for _ in range(12):
        peer = random.choice([alice, bob, *liars])
        refs = [ref["ref_id"] for ref in peer.do("timeline.list", room_id=room)["refs"]]
        try:
            match random.randrange(5):
                case 0 if refs:
                    peer.do("message.delete", room_id=room, ref_id=random.choice(refs))
                case 1:
                    peer.do("room.update_config", room_id=room, changes={"name": str(random.random())})
                case _:
                    peer.do("message.send", room_id=room, body=str(random.random()))
        except SubletError:
            peer.engine.commit()
        for item in peer.published():
            for other in [alice, bob]:
                if other is not peer and random.random() < 0.6:
                    other.hear([item])
        for liar in liars:
            if random.random() < 0.5:
                liar.hear([])
                for name in names(room):
                    for source in (alice, bob):
                        take(liar, room, state(source.engine, name, vector(liar, name)))
    all_ask([alice, bob], room)
    assert seen(alice, room) == seen(bob, room)
    for peer in (alice, bob):
        assert set(told(peer, EQUIVOCATION_EVENT)) <= {eve.id}
    reopened = Peer("carol", 7)
    reopened.meet(alice, bob, eve)
    for name in names(room):
        reopened.engine.here.want(room)
        take(reopened, room, state(bob.engine, name, {}))
    assert listed(reopened, room) == listed(alice, room)


def listed(peer: Peer, room: str) -> list[Any]:
    document = peer.engine.documents.open(names(room)[1])
    return [node.entry_id for node in document.elements.chain if peer.engine.reading.counts(document, node)]


def test_honest_repetition_is_no_fork() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    alice.do("message.send", room_id=room, body="x")
    out = alice.published()
    for _ in range(3):
        bob.hear(out)
        all_ask([alice, bob], room)
    assert told(bob, EQUIVOCATION_EVENT) == []
    assert bob.refused() == {}


def test_what_was_written_before_a_fork_comes_though_the_fork_is_learnt_first() -> None:
    alice, bob, eve, carol = peers("alice", "bob", "eve", "carol")
    room = shared_room(alice, bob, eve, carol)
    eve.do("message.send", room_id=room, body="before")
    first = eve.published()
    alice.hear(first)
    bob.hear(first)
    liar = twin(eve, room)
    eve.do("message.send", room_id=room, body="to alice")
    liar.do("message.send", room_id=room, body="to bob")
    alice.hear(eve.published())
    bob.hear(liar.published())
    all_ask([alice, bob], room)
    answer = state(alice.engine, names(room)[1], {})
    assert answer is not None
    proofs = Bundle(tuple((RecordKind.FORK, raw) for raw in decode_bundle(answer).of(RecordKind.FORK)))
    carol.engine.intake.take_bundle(room, proofs)
    assert told(carol, EQUIVOCATION_EVENT) == [eve.id]
    assert carol.bodies(room) == []
    reconcile(carol, alice, room)
    assert carol.bodies(room) == alice.bodies(room) == ["before"]
    reconcile(alice, carol, room)
    assert carol.store.tree.root(room).same(alice.store.tree.root(room))


def test_nobody_proves_a_fork_of_somebody_else() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob, eve)
    alice.do("message.send", room_id=room, body="x")
    out = alice.published()
    bob.hear(out)
    forged = bytearray(out[0].payload)
    forged[-70] ^= 1
    bob.engine.intake.take([Arrival(bytes(forged))])
    assert told(bob, EQUIVOCATION_EVENT) == []
    assert bob.bodies(room) == ["x"]
    assert sum(bob.refused().values()) == 1


def test_a_peer_that_goes_back_is_named(tmp_path: Path) -> None:
    alice = Peer("alice", 1)
    bob = Peer("bob", 2, tmp_path / "b.db")
    alice.meet(bob)
    bob.meet(alice)
    room = shared_room(alice, bob)
    bob.do("message.send", room_id=room, body="x")
    ask(alice, bob, room)
    stale = bob.engine.roots.statement(room)
    bob.clock.now_ms += 1_000
    ask(alice, bob, room)
    assert told(alice, ROLLED_BACK_EVENT) == []
    bob.clock.now_ms += 1_000
    back = Peer("bob", 3, clock=bob.clock)
    back.meet(alice)
    back.catch_up(alice, room)
    row = back.store.find_document(names(room)[1])
    assert row is not None
    with back.store.transaction():
        back.store.trust.rewind(row.number, {bob.client: 0})
    back.engine.documents.close(names(room)[1])
    ask(alice, back, room)
    assert told(alice, ROLLED_BACK_EVENT) == [bob.id]
    assert stale is not None
    alice.engine.roots.take(room, decode_bundle(stale).of(RecordKind.ROOT)[0])  # an old one says nothing new
    assert told(alice, ROLLED_BACK_EVENT) == [bob.id]


def test_roots_of_strangers_from_the_future_or_of_another_room_say_nothing() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob)
    elsewhere = shared_room(bob, alice)
    foreign = shared_room(eve)
    for answer in (bob.engine.roots.statement(elsewhere), eve.engine.roots.statement(foreign)):
        assert answer is not None
        with pytest.raises(Refused):
            alice.engine.roots.take(room, decode_bundle(answer).of(RecordKind.ROOT)[0])
    bob.clock.now_ms += MAX_AHEAD_MS + 1
    answer = bob.engine.roots.statement(room)
    assert answer is not None
    with pytest.raises(Refused, match="future"):
        alice.engine.roots.take(room, decode_bundle(answer).of(RecordKind.ROOT)[0])
    assert eve.engine.roots.statement(room) is None


def test_nothing_of_ours_is_signed_for_clocks_that_are_not_the_next() -> None:
    (alice,) = peers("alice")
    room = shared_room(alice)
    alice.do("message.send", room_id=room, body="x")
    out = alice.published()[0]
    envelope = unpack(out.payload)
    document = alice.engine.documents.open(envelope.doc_id)
    with pytest.raises(Refused, match="next ones"):
        alice.engine.staging.local(document, envelope, decode_update(envelope.payload), {})


def test_who_forks_often_counts_nowhere_and_costs_nobody_any_time(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob, eve = everyone = peers("alice", "bob", "eve")
    room = shared_room(*everyone)
    clients = [Peer("eve", 2_000 + number) for number in range(MAX_FORKS_OF_SIGNER + 4)]
    first, second = ([Writer(client, room).next(size) for client in clients] for size in (1, 2))
    for peer in (alice, bob):
        peer.engine.intake.take([Arrival(raw) for raw in first])
    for number in range(5):
        alice.do("message.send", room_id=room, body=f"a{number}")
        bob.hear(alice.published())
        bob.do("message.send", room_id=room, body=f"b{number}")
        alice.hear(bob.published())
    times: list[str] = []
    taken_back = alice.engine.forks._take_back

    def counted(name: str, forks: list[Fork]) -> list[bytes]:
        times.append(name)
        return taken_back(name, forks)

    monkeypatch.setattr(alice.engine.forks, "_take_back", counted)
    alice.engine.intake.take([Arrival(raw) for raw in second[: MAX_FORKS_OF_SIGNER - 1]])
    assert len(times) == 1, "all forks of a batch together"
    assert sum(ref["author"] == eve.id for ref in alice.do("timeline.list", room_id=room)["refs"]) == 5
    alice.engine.intake.take([Arrival(second[MAX_FORKS_OF_SIGNER - 1])])
    assert len(times) == 2
    assert [ref["author"] for ref in alice.do("timeline.list", room_id=room)["refs"]].count(eve.id) == 0
    # whatever comes of her from now on
    late = Writer(Peer("eve", 3_000), room)
    alice.engine.intake.take([Arrival(raw) for raw in (*second[MAX_FORKS_OF_SIGNER:], *first, late.next())])
    assert len(times) == 2
    assert told(alice, EQUIVOCATION_EVENT) == [eve.id] * 2
    ours = [f"{name}{number}" for number in range(5) for name in "ab"]
    assert alice.bodies(room) == ours
    # what stands on something that nobody here has any more is shown all the same
    bob.engine.intake.take([Arrival(late.next())])
    bob.do("message.send", room_id=room, body="on top of it")
    alice.hear(bob.published())
    all_ask([alice, bob], room)
    assert alice.bodies(room) == bob.bodies(room)
    assert [body for body in bob.bodies(room) if body in ours] == ours
    assert bob.bodies(room)[-1] == "on top of it"
    before = alice.refused()
    all_ask([alice, bob], room)
    assert alice.refused() == before


def test_proofs_of_any_size_are_told_in_answers_that_can_be_read() -> None:
    alice, bob, _ = everyone = peers("alice", "bob", "eve")
    room = shared_room(*everyone)
    name = names(room)[1]
    alice.do("message.send", room_id=room, body="first")
    for number in range(MAX_FORKS_OF_SIGNER - 1):
        for size in (500_000, 500_001):
            raw = Writer(Peer("eve", 2_000 + number), room).next(size)
            alice.engine.intake.take([Arrival(raw)])
    alice.do("message.send", room_id=room, body="last")
    for _ in range(MAX_FORKS_OF_SIGNER + 3):
        answer = state(alice.engine, name, vector(bob, name))
        if answer is not None:
            assert len(answer) <= MAX_BUNDLE_BYTES // 2
            take(bob, room, answer)
    assert answer is None
    assert bob.bodies(room) == alice.bodies(room) == ["first", "last"]
    assert bob.engine.documents.open(name).forks == alice.engine.documents.open(name).forks


def test_what_stands_behind_a_fork_is_ranked_anew_as_it_is_where_the_fork_was_known_before() -> None:
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob, eve)
    shard = "2026-12"
    writer = OddMember(eve, room)
    one = writer.ref({}, shard, NOW_MS + 86_400_000)
    writer.fork(doc_id("index", room_id=room, shard_id=shard))
    other = writer.ref({}, shard, NOW_MS + 2 * 86_400_000)
    alice.engine.intake.take([one])
    alice.do("message.send", room_id=room, body="behind what Eve wrote")
    bob.clock.now_ms += 5_000
    bob.do("message.send", room_id=room, body="a moment later")
    behind, later = alice.published(), bob.published()
    alice.hear(later)
    assert written(alice, room) == ["a moment later", "behind what Eve wrote"]
    alice.engine.intake.take([other])
    bob.engine.intake.take([one, other])
    bob.hear(behind)
    assert told(alice, EQUIVOCATION_EVENT) == told(bob, EQUIVOCATION_EVENT) == [eve.id]
    assert written(alice, room) == written(bob, room) == ["behind what Eve wrote", "a moment later"]
    alice.engine.documents.forget()  # as after a restart
    assert written(alice, room) == written(bob, room)


def written(peer: Peer, room: str) -> list[Any]:
    return [body for body in peer.bodies(room) if body is not None]

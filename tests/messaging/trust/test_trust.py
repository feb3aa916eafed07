"""What a peer may send: forged, foreign, malformed and oversized input changes nothing, and nothing sneaks back."""

from __future__ import annotations

from typing import Any

import pytest
from pycrdt import Array, Doc, Map

from sublet.messaging.accepting.arrival import Arrival
from sublet.messaging.ports.outbox import Outgoing
from sublet.protocol.ezagent.content import canonical, content_object, sign_content
from sublet.protocol.ezagent.envelope import Envelope, seal, unpack
from sublet.protocol.ezagent.ids import client_id, own_ref_id
from sublet.protocol.ezagent.keys import doc_id
from sublet.protocol.ezagent.yjs.decode import decode_update
from sublet.protocol.ezagent.yjs.encode import Transaction
from support.rooms import NOW_MS, Peer, peers, shared_room

SHARD = "2026-11"


def ref(author: str, room: str, **more: Any) -> dict[str, Any]:
    content = "sha256:" + "0" * 64
    return {
        "ref_id": own_ref_id(NOW_MS, room, author, 7),
        "author": author,
        "content_type": "immutable",
        "content_id": content,
        "created_at": "2026-11-28T10:00:00.000Z",
        "status": "active",
        "signature": "",
        **more,
    }


def envelope(peer: Peer, room: str, transaction: Transaction, *, signer: str | None = None) -> bytes:
    name = doc_id("index", room_id=room, shard_id=SHARD)
    return seal(peer.entity.key, signer or peer.id, name, NOW_MS, transaction.encode()).raw


def appended(client: int, clock: int, fields: dict[str, Any], last: tuple[int, int] | None = None) -> Transaction:
    transaction = Transaction(client, clock)
    transaction.append_maps("timeline", last, [fields])
    return transaction


def inserted(author: Peer, room: str, there: Peer) -> bytes:
    """Return an update of yrs that puts a ref in front of all others, which a timeline never does."""
    doc: Doc[Any] = Doc(client_id=author.client, skip_gc=True)
    array: Array[Any] = doc.get("timeline", type=Array)
    for seq in range(1, there.store.last_seq() + 1):
        known = unpack(there.store.envelope(seq))
        if "/index/" in known.doc_id:
            doc.apply_update(known.payload)
    before = doc.get_state()
    array.insert(0, Map(ref(author.id, room)))
    return doc.get_update(before)


@pytest.fixture
def room_of_three() -> tuple[Peer, Peer, Peer, str]:
    """Return Alice and Bob in a room that Eve knows of and is not a member of, with one message of Alice's."""
    alice, bob, eve = peers("alice", "bob", "eve")
    room = shared_room(alice, bob)
    alice.do("message.send", room_id=room, body="first")
    out = alice.published()
    bob.hear(out)
    eve.engine.here.want(room)
    return alice, bob, eve, room


def test_forged_envelopes_change_nothing(room_of_three: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, eve, room = room_of_three
    mine = eve.client
    in_anothers_name = envelope(eve, room, appended(mine, 0, ref(alice.id, room)), signer=alice.id)
    anothers_author = envelope(eve, room, appended(mine, 0, ref(alice.id, room)))
    last = bob.engine.documents.open(doc_id("index", room_id=room, shard_id=SHARD)).elements.chain.tail
    assert last is not None
    assert decode_update(inserted(eve, room, bob)).items[0].right == last.id
    ahead = envelope(eve, room, appended(client_id(alice.id, 5), 0, ref(eve.id, room)))
    under_anothers_id = envelope(eve, room, appended(mine, 0, ref(eve.id, room, ref_id=last.entry_id)))
    name = doc_id("index", room_id=room, shard_id=SHARD)
    put_before = seal(eve.entity.key, eve.id, name, NOW_MS, inserted(eve, room, bob)).raw
    stolen_client = envelope(eve, room, appended(alice.client, last.id[1] + last.length, ref(eve.id, room)))
    other_root = Transaction(mine, 0)
    other_root.append_maps("messages", None, [ref(eve.id, room)])
    no_map = Transaction(mine, 0)
    no_map.set_key("timeline", "x", None, 1)
    status = Transaction(mine, 0)
    status.set_key(last.id, "status", None, "deleted_by_author")
    author = Transaction(mine, 0)
    author.set_key(last.id, "author", None, eve.id)
    raw = [
        in_anothers_name,
        anothers_author,
        stolen_client,
        ahead,
        put_before,
        under_anothers_id,
        envelope(eve, room, other_root),
        envelope(eve, room, no_map),
        envelope(eve, room, status),
        envelope(eve, room, author),
        envelope(eve, room, appended(mine, 0, ref(eve.id, room, ref_id="x"))),
        envelope(eve, room, appended(mine, 0, ref(eve.id, room, status=1))),
        b"garbage",
        in_anothers_name[:-1],
        seal(eve.entity.key, eve.id, "ezagent/nothing", NOW_MS, b"\0\0").raw,
    ]
    before = bob.store.last_seq()
    outcome = bob.engine.intake.take([Arrival(item) for item in raw])
    assert outcome.accepted == 0
    assert bob.store.last_seq() == before
    assert sum(bob.refused().values()) == len(raw)
    assert bob.bodies(room) == ["first"]


def test_a_stranger_is_heard_and_not_shown(room_of_three: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, eve, room = room_of_three
    bob.engine.intake.take([Arrival(envelope(eve, room, appended(eve.client, 0, ref(eve.id, room))))])
    assert bob.bodies(room) == ["first"]
    assert [event.data["author"] for event in bob.engine.events.since(0) if event.kind == "message.new"] == [alice.id]


def test_what_came_before_the_grant_is_shown_with_it_unless_the_grant_has_seen_it(
    room_of_three: tuple[Peer, Peer, Peer, str],
) -> None:
    alice, bob, eve, room = room_of_three
    early = envelope(eve, room, appended(eve.client, 0, ref(eve.id, room)))
    bob.engine.intake.take([Arrival(early)])
    alice.do("room.invite", room_id=room, entity=eve.id)  # Alice knows nothing of it
    grant = alice.published()
    bob.hear(grant)
    assert len(bob.bodies(room)) == 2
    assert [event.data["author"] for event in bob.engine.events.since(0) if event.kind == "message.new"] == [
        alice.id,
        eve.id,
    ]


def test_a_removed_members_messages_count_up_to_what_the_removal_has_seen(
    room_of_three: tuple[Peer, Peer, Peer, str],
) -> None:
    alice, bob, _, room = room_of_three
    bob.do("message.send", room_id=room, body="seen")
    alice.hear(bob.published())
    bob.do("message.send", room_id=room, body="on its way")
    late = bob.published()
    alice.do("room.kick", room_id=room, entity=bob.id)
    alice.hear(late)
    assert alice.bodies(room) == ["first", "seen"]
    assert "room.member.left" in alice.kinds()
    bundle = [alice.store.envelope(seq) for seq in range(1, alice.store.last_seq() + 1)]
    (carol,) = peers("carol")
    carol.meet(alice, bob)
    carol.engine.here.want(room)
    carol.engine.intake.take([Arrival(raw) for raw in bundle])
    counted = carol.engine.documents.open(doc_id("index", room_id=room, shard_id=SHARD))
    assert [carol.engine.reading.counts(counted, node) for node in counted.elements.chain] == [True, True, False]


def test_who_is_not_known_yet_waits_for_their_key() -> None:
    alice, bob = Peer("alice", 1), Peer("bob", 2)
    bob.meet(alice)
    room = alice.do("room.create", name="r", invite=[bob.id])["room_id"]
    bob2 = Peer("bob", 3)
    bob2.engine.here.want(room)
    outcome = bob2.hear(alice.published())
    assert outcome.unknown_signers == {alice.id}
    assert bob2.engine.rooms.state(room).creator is None
    bob2.meet(alice)
    assert bob2.do("room.members", room_id=room) == {alice.id: "owner", bob.id: "member"}


def test_gaps_are_held_and_filled_in_any_order(room_of_three: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, _, room = room_of_three
    sent: list[Outgoing] = []
    for number in range(4):
        alice.do("message.send", room_id=room, body=str(number))
        sent += alice.published()
    outcome = bob.hear([sent[3], sent[2]])
    assert outcome.gaps == {doc_id("index", room_id=room, shard_id=SHARD)}
    bob.hear([sent[1], sent[1]])
    assert bob.bodies(room) == ["first"]
    bob.hear([sent[0]])
    assert bob.bodies(room) == ["first", "0", "1", "2", "3"]
    bob.hear(sent)
    assert bob.bodies(room) == ["first", "0", "1", "2", "3"]


def test_a_restart_reads_the_same_from_disk(tmp_path: Any) -> None:
    alice, bob = Peer("alice", 1, tmp_path / "a.db"), Peer("bob", 2)
    alice.meet(bob)
    bob.meet(alice)
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="kept")["ref_id"]
    bob.hear(alice.published())
    bob.do("message.send", room_id=room, body="answer")
    alice.hear(bob.published())
    alice.do("message.delete", room_id=room, ref_id=ref)
    before = alice.do("timeline.list", room_id=room)
    alice.store.close()
    alice.entity = type(alice.entity)(alice.entity.record, alice.entity.key, 77)  # a new process has a new client id
    alice.open()
    assert alice.do("timeline.list", room_id=room) == before
    alice.do("message.send", room_id=room, body="after")
    bob.hear(alice.published())
    assert bob.bodies(room)[-1] == "after"


def test_a_commit_that_fails_leaves_nothing_behind(
    room_of_three: tuple[Peer, Peer, Peer, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob, _, room = room_of_three
    alice.do("message.send", room_id=room, body="second")
    out = alice.published()

    def full(batch: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(bob.store, "write", full)
        with pytest.raises(OSError, match="disk full"):
            bob.hear(out)
    assert bob.bodies(room) == ["first"]
    bob.hear(out)
    assert bob.bodies(room) == ["first", "second"]


def test_content_in_anothers_name_is_not_shown(room_of_three: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, _, room = room_of_three
    stolen = sign_content(content_object(alice.id, "I said so", "text/plain", "now", []), bob.entity.key)
    raw = canonical(stolen)
    bob_client = client_id(bob.id, 5001)
    made = appended(bob_client, 0, ref(bob.id, room, content_id=stolen["content_id"]), None)
    alice.engine.intake.take([Arrival(envelope(bob, room, made), (raw,))])
    assert sorted(alice.bodies(room), key=str) == [None, "first"]


def test_an_envelope_for_every_update_is_kept(room_of_three: tuple[Peer, Peer, Peer, str]) -> None:
    alice, _, _, room = room_of_three
    kept: list[Envelope] = [unpack(alice.store.envelope(seq)) for seq in range(1, alice.store.last_seq() + 1)]
    assert {item.doc_id.removeprefix(f"ezagent/{room}/") for item in kept} == {"config", f"index/{SHARD}"}

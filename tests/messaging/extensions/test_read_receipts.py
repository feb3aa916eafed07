"""EXT-08: reading marks what was read, only forward, only in one's own name, at a cost that stays the same."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.operations import run_operation
from sublet.messaging.extensions.read_receipts import READ_RECEIPTS, RECEIPTS, has_read, read_up_to
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import Peer, peers, shared_room


def pair() -> tuple[Peer, Peer, str]:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, RECEIPTS))
    return alice, bob, shared_room(alice, bob)


def send(peer: Peer, room: str, *bodies: str) -> list[str]:
    return [peer.do("message.send", room_id=room, body=body)["ref_id"] for body in bodies]


def rows(peer: Peer, room: str) -> int:
    document = peer.engine.documents.open(doc_id("ext", room_id=room, ext_id=READ_RECEIPTS))
    return len(peer.store.writes(document.row.number, None))


def test_who_reads_a_page_has_read_up_to_its_end_and_the_author_learns_it() -> None:
    alice, bob, room = pair()
    first, second = send(alice, room, "one", "two")
    bob.hear(alice.published())
    assert bob.do("receipts.summary", room_id=room) == {"unread": 2, "more": False, "readers": {}}
    assert not has_read(bob.engine, room, bob.id, first)
    bob.do("timeline.list", room_id=room)
    assert read_up_to(bob.engine, room, bob.id) == second
    assert bob.do("receipts.summary", room_id=room)["unread"] == 0
    alice.hear(bob.published())
    assert has_read(alice.engine, room, bob.id, first)
    assert has_read(alice.engine, room, bob.id, second)
    assert not has_read(alice.engine, room, alice.id, first)
    third = send(alice, room, "three")[0]
    assert not has_read(alice.engine, room, bob.id, third)
    reader = alice.do("receipts.summary", room_id=room)["readers"][bob.id]
    assert reader["last_read_ref"] == second
    assert set(reader) == {"last_read_ref", "last_read_window", "updated_at"}
    bob.hear(alice.published())
    assert bob.do("receipts.summary", room_id=room)["unread"] == 1


def test_a_position_never_goes_back_and_reading_again_writes_nothing() -> None:
    alice, bob, room = pair()
    refs = send(alice, room, *map(str, range(6)))
    bob.hear(alice.published())
    assert bob.do("receipts.update", room_id=room, ref_id=refs[3]) == {"moved": True}
    assert bob.do("receipts.update", room_id=room, ref_id=refs[1]) == {"moved": False}
    assert read_up_to(bob.engine, room, bob.id) == refs[3]
    bob.published()
    bob.do("timeline.list", room_id=room, limit=2, before=refs[3])
    bob.do("timeline.get_ref", room_id=room, ref_id=refs[5])
    assert bob.published() == []
    bob.do("timeline.list", room_id=room)
    assert len(bob.published()) == 1
    for _ in range(3):
        bob.do("timeline.list", room_id=room)
    assert bob.published() == []
    with pytest.raises(SubletError, match="no message"):
        bob.do("receipts.update", room_id=room, ref_id="01" * 13)


def test_reads_of_one_batch_write_once() -> None:
    alice, bob, room = pair()
    refs = send(alice, room, *map(str, range(4)))
    bob.hear(alice.published())
    bob.published()
    for after in (None, *refs[:-1]):
        run_operation(
            bob.engine.registry.operations,
            bob.engine.operating,
            bob.id,
            "timeline.list",
            {"room_id": room, "after": after},
        )
    bob.engine.commit()
    assert len(bob.published()) == 1
    assert read_up_to(bob.engine, room, bob.id) == refs[-1]


def test_what_is_looked_at_does_not_grow_with_the_reading() -> None:
    alice, bob, room = pair()
    counts = []
    for number in range(20):
        send(alice, room, str(number))
        bob.hear(alice.published())
        bob.do("timeline.list", room_id=room)
        alice.hear(bob.published())
        counts.append((rows(alice, room), rows(bob, room)))
    assert set(counts) == {(4, 4)}


def test_nobody_reads_in_the_name_of_another() -> None:
    alice, bob, room = pair()
    (ref,) = send(alice, room, "one")
    bob.hear(alice.published())
    document = doc_id("ext", room_id=room, ext_id=READ_RECEIPTS)
    bob.do("receipts.update", room_id=room, ref_id=ref)
    alice.hear(bob.published())
    (later,) = send(alice, room, "two")
    alice.engine.writing.set_field(alice.id, document, None, (bob.id, "last_read_ref"), later)
    alice.engine.commit()
    bob.hear(alice.published())
    for peer in (alice, bob):
        assert read_up_to(peer.engine, room, bob.id) == ref
        assert peer.do("receipts.summary", room_id=room)["readers"][bob.id]["last_read_ref"] == ref


def test_a_room_without_them_writes_none() -> None:
    (alice,) = peers("alice", declarations=(*BUILT_INS, RECEIPTS))
    room = alice.do("room.create", name="r", extensions=[])["room_id"]
    (ref,) = send(alice, room, "one")
    alice.published()
    alice.do("timeline.list", room_id=room)
    assert alice.published() == []
    with pytest.raises(SubletError, match="read-receipts is switched off"):
        alice.do("receipts.update", room_id=room, ref_id=ref)


def test_positions_outlive_the_process_and_go_on_with_another_client() -> None:
    alice, bob, room = pair()
    refs = send(alice, room, "one", "two")
    bob.hear(alice.published())
    bob.do("receipts.update", room_id=room, ref_id=refs[0])
    carol = Peer("bob", 77, declarations=(*BUILT_INS, RECEIPTS))  # the same entity in its next process
    carol.meet(alice)
    carol.catch_up(bob, room)
    assert read_up_to(carol.engine, room, bob.id) == refs[0]
    carol.do("receipts.update", room_id=room, ref_id=refs[1])
    alice.hear(bob.published())
    alice.hear(carol.published())
    assert read_up_to(alice.engine, room, bob.id) == refs[1]
    assert rows(alice, room) == 4

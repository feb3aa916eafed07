"""What annotates a few refs of a shard reads these alone; whoever adds or walks has all of them, the same ones."""

from __future__ import annotations

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.documents.document import Document
from sublet.messaging.documents.elements import READ_ALONE
from sublet.messaging.extensions import EXTENSIONS
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import Peer, peers, shared_room

COUNT = 2 * READ_ALONE


def shard(peer: Peer, room: str) -> Document:
    """Return a room's shard as it is when it is opened anew."""
    name = doc_id("index", room_id=room, shard_id="2026-11")
    peer.engine.documents.close(name)
    return peer.engine.documents.open(name)


def two_with_messages() -> tuple[Peer, Peer, str, list[str]]:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, *EXTENSIONS))
    room = shared_room(alice, bob)
    refs = [alice.do("message.send", room_id=room, body=str(number))["ref_id"] for number in range(COUNT)]
    bob.hear(alice.published())
    return alice, bob, room, refs


def test_who_hears_of_an_annotation_does_not_read_the_other_refs() -> None:
    alice, bob, room, refs = two_with_messages()
    document = shard(bob, room)
    alice.do("reactions.add", room_id=room, ref_id=refs[5], emoji="👍")
    alice.do("mutable.update", room_id=room, ref_id=refs[7], body="edited")
    bob.hear(alice.published())
    assert not document.elements.is_read
    assert document.elements.in_memory == 0
    assert bob.engine.documents.open(document.row.doc_id) is document
    ref = bob.do("timeline.get_ref", room_id=room, ref_id=refs[5])
    assert ref["reactions"]["👍"]["count"] == 1
    assert bob.do("timeline.get_ref", room_id=room, ref_id=refs[7])["body"] == "edited"
    assert not document.elements.is_read


def test_one_that_is_read_alone_is_the_same_as_among_all() -> None:
    _, bob, room, _ = two_with_messages()
    alone, whole = shard(bob, room), shard(bob, room)
    nodes = list(whole.elements.chain)
    for node in nodes[::5]:
        found = alone.elements.named(node.entry_id)
        assert found is not None
        assert (found.id, found.length, found.rank, found.seq) == (node.id, node.length, node.rank, node.seq)
        last = (node.id[0], node.id[1] + node.length - 1)
        assert [alone.elements.node(node.id), alone.elements.holding(last)] == [found, found]
        assert alone.elements.node(last) is None
    beyond = (nodes[-1].id[0], nodes[-1].id[1] + nodes[-1].length)
    assert alone.elements.holding(beyond) is None
    assert alone.elements.named("01ARZ3NDEKTSV4RRFFQ69G5FAV") is None
    assert not alone.elements.is_read


def test_who_needs_more_than_a_few_has_all_of_them_read() -> None:
    _, bob, room, refs = two_with_messages()
    document, whole = shard(bob, room), shard(bob, room)
    for node in whole.elements.chain:
        assert document.elements.node(node.id) is not None
    assert document.elements.is_read
    assert document.elements.in_memory == len(refs)

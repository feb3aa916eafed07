"""Which documents stay open: what is in memory alone, and of the others no more than a bound."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.documents.document import Document
from sublet.messaging.extensions.mutable import MUTABLES
from sublet.messaging.opening import open_documents
from sublet.messaging.opening.open_documents import MAX_OPEN_DOCUMENTS, OpenDocuments
from support.rooms import Peer, peers, shared_room


def room_of(*alice_and_others: Peer) -> tuple[str, list[str]]:
    """Return a room with messages of the first peer."""
    alice = alice_and_others[0]
    room = shared_room(*alice_and_others)
    refs = [alice.do("message.send", room_id=room, body=f"{number}")["ref_id"] for number in range(12)]
    return room, refs


def is_counted(documents: OpenDocuments) -> bool:
    """Tell whether what is counted together is what the open documents hold."""
    opened = list(documents._open.values())
    counted = documents._counted
    return (counted.elements, counted.held_bytes, counted.clients) == (
        sum(one.elements.in_memory for one in opened),
        sum(one.held.size for one in opened),
        sum(len(one.clients) for one in opened),
    )


def test_what_is_open_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, MUTABLES))
    _, _ = room_of(alice, bob)
    documents = alice.engine.documents
    rooms = [alice.do("room.create", name=f"{number}")["room_id"] for number in range(2 * MAX_OPEN_DOCUMENTS)]
    for room in rooms:
        alice.do("message.send", room_id=room, body="one")
    assert 0 < len(documents._open) <= MAX_OPEN_DOCUMENTS
    assert is_counted(documents)
    monkeypatch.setattr(open_documents, "MAX_OPEN_ELEMENTS", 3)
    documents._most = open_documents._bounds()
    for room in rooms[:8]:
        assert alice.bodies(room) == ["one"]
        assert is_counted(documents)
    assert documents._counted.elements <= 4
    documents.forget_room(rooms[7])
    documents.forget()
    assert (documents._counted.elements, documents._counted.held_bytes, len(documents._open)) == (0, 0, 0)


def test_a_batch_of_many_documents_looks_at_each_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, bob = peers("alice", "bob", declarations=(*BUILT_INS, MUTABLES))
    shared_room(alice, bob)
    documents, looked = alice.engine.documents, 0

    def looking(document: Document) -> bool:
        nonlocal looked
        looked += 1
        return not document.unsettled

    monkeypatch.setattr(Document, "is_idle", property(looking))
    count, place = 8 * MAX_OPEN_DOCUMENTS, "ezagent/01a2212b-1000-7167-9394-011daa814786/content/uuid:01932f00"
    for number in range(count):
        documents.open(f"{place}-0000-7000-8000-{number:012x}").unsettled = True
    assert len(documents._open) >= count
    assert looked < 8 * count
    for document in documents._open.values():
        document.unsettled = False
    documents.settled(1)  # a small batch does not look through all
    assert len(documents._open) >= count
    documents.settled(count)
    assert len(documents._open) <= MAX_OPEN_DOCUMENTS
    assert is_counted(documents)


def test_what_waits_for_others_is_counted_until_its_document_is_closed() -> None:
    alice, bob = peers("alice", "bob")
    room, _ = room_of(alice, bob)
    late = alice.published()
    bob.hear(late[1:])
    documents = bob.engine.documents
    assert documents.held_bytes() > 0
    assert is_counted(documents)
    held = next(one for one in documents._open.values() if len(one.held))
    documents.close(held.row.doc_id)
    assert documents.held_bytes() == 0
    held.hold(b"d", next(iter(held.held)).envelope, next(iter(held.held)).update)
    assert is_counted(documents), "what is closed counts no more, whoever has it in hand"
    assert alice.bodies(room)

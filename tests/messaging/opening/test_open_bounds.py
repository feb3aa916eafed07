"""What is open in memory: enough for a page of messages, and bounded by documents, elements and writers."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.builtins.timeline import MAX_LIMIT
from sublet.messaging.extensions import EXTENSIONS
from sublet.messaging.opening import open_documents
from sublet.messaging.texts import texts
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import Peer


def _with_edited(count: int) -> tuple[Peer, str]:
    alice = Peer("alice", 1, declarations=(*BUILT_INS, *EXTENSIONS))
    room = alice.do("room.create", name="Work", invite=[])["room_id"]
    for number in range(count):
        ref = alice.do("message.send", room_id=room, body=f"{number}")["ref_id"]
        alice.do("mutable.update", room_id=room, ref_id=ref, body=f"{number}, edited")
    return alice, room


def test_a_page_whose_messages_were_all_edited_is_read_again_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, room = _with_edited(MAX_LIMIT)
    page = alice.do("timeline.list", room_id=room, limit=MAX_LIMIT, before=None)
    assert [ref["body"] for ref in page["refs"]] == [f"{number}, edited" for number in range(MAX_LIMIT)]
    documents = alice.engine.documents

    def load(name: str, *_: object) -> object:
        raise AssertionError(f"{name} is read again")

    monkeypatch.setattr(documents, "_load", load)
    monkeypatch.setattr(alice.engine.texts, "_begin", lambda document, **_: load(document.row.doc_id))
    assert alice.do("timeline.list", room_id=room, limit=MAX_LIMIT, before=None) == page


def test_no_more_texts_are_open_than_the_bounds_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MAX_OPEN_TEXTS", 4)
    alice, room = _with_edited(8)
    assert len(alice.engine.texts._open) == 4
    size = sum(one.replay.size for one in alice.engine.texts._open.values())
    assert size > 0
    assert alice.engine.texts._size == size
    monkeypatch.setattr(texts, "MAX_OPEN_BYTES", size // 2)
    alice.do("timeline.list", room_id=room, limit=8, before=None)
    assert alice.engine.texts._size <= size // 2
    assert 0 < len(alice.engine.texts._open) < 4
    alice.engine.texts.forget()
    assert alice.engine.texts._size == 0


@pytest.mark.parametrize("bound", ["MAX_OPEN_DOCUMENTS", "MAX_OPEN_CLIENTS"])
def test_documents_that_were_used_longest_ago_are_closed(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    alice, _ = _with_edited(8)
    documents = alice.engine.documents
    before = list(documents._open)
    assert len(before) > 6
    monkeypatch.setattr(open_documents, bound, 3)
    documents._most = open_documents._bounds()
    documents.open(name := doc_id("inbox", entity_id=alice.id))
    left = list(documents._open)
    assert left == [*before, name][-len(left) :], "the first to go are those that were used longest ago"
    assert len(left) <= 3 or bound == "MAX_OPEN_CLIENTS"
    assert sum(len(document.clients) for document in documents._open.values()) <= 3


def test_what_is_only_in_memory_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    alice, _ = _with_edited(4)
    documents = alice.engine.documents
    kept = next(iter(documents._open))
    documents._open[kept].unsettled = True
    monkeypatch.setattr(open_documents, "MAX_OPEN_DOCUMENTS", 1)
    documents._most = open_documents._bounds()
    documents.open(name := doc_id("inbox", entity_id=alice.id))
    assert list(documents._open) == [kept, name]

"""EXT-04: a reply names what it answers, and what is answered lists its replies."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.extensions.reply_to import MAX_REPLIES_SHOWN, REPLY_TO, ReplyTarget, reply_target
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.errors import Refused
from sublet.protocol.ezagent.keys import doc_id
from support.ref_signatures import verify_ref
from support.rooms import Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, REPLY_TO)
NOBODYS = "ulid:01ARYZ6S41TSV4RRFFQ69G5FAV"


def room_of_two() -> tuple[Peer, Peer, str, str]:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="a question")["ref_id"]
    bob.hear(alice.published())
    return alice, bob, room, ref


def test_a_reply_is_listed_with_what_it_answers_on_both_sides() -> None:
    alice, bob, room, ref = room_of_two()
    reply = bob.do("message.send", room_id=room, body="an answer", ext={"reply_to": ref})["ref_id"]
    alice.hear(bob.published())
    for peer in (alice, bob):
        question, answer = peer.do("timeline.list", room_id=room)["refs"]
        assert question["replies"] == [reply]
        assert answer["ext.reply_to"] == {"ref_id": ref}
        assert "replies" not in answer


def test_the_author_has_signed_what_the_reply_answers() -> None:
    alice, bob, room, ref = room_of_two()
    reply = bob.do("message.send", room_id=room, body="an answer", ext={"reply_to": {"ref_id": ref}})["ref_id"]
    alice.hear(bob.published())
    stored = alice.engine.reading.ref(reply)
    keys = alice.engine.keyring.keys(bob.id)
    assert stored is not None
    assert keys is not None
    verify_ref(room, stored, keys)
    with pytest.raises(Refused):
        verify_ref(room, {**stored, "ext.reply_to": {"ref_id": NOBODYS}}, keys)
    # Nobody else turns it into the answer of something else.
    timeline = doc_id("index", room_id=room, shard_id=stored["shard_id"])
    alice.engine.writing.set_field(alice.id, timeline, reply, ("ext.reply_to",), {"ref_id": NOBODYS})
    alice.engine.commit()
    bob.hear(alice.published())
    for peer in (alice, bob):
        assert peer.do("timeline.get_ref", room_id=room, ref_id=reply)["ext.reply_to"] == {"ref_id": ref}


@pytest.mark.parametrize("target", ["hello", NOBODYS, {"ref": NOBODYS}, {"ref_id": 1}, 7, ["x"]])
def test_what_is_no_reply(target: object) -> None:
    alice, _, room, _ = room_of_two()
    with pytest.raises(SubletError, match="message"):
        alice.do("message.send", room_id=room, body="x", ext={"reply_to": target})
    assert alice.published() == []


def test_a_message_of_another_room_is_no_target() -> None:
    alice, _, room, ref = room_of_two()
    other = alice.do("room.create", name="other")["room_id"]
    with pytest.raises(SubletError, match="no message"):
        alice.do("message.send", room_id=other, body="x", ext={"reply_to": ref})
    with pytest.raises(SubletError, match="cross-room-ref"):
        alice.do("message.send", room_id=other, body="x", ext={"reply_to": {"ref_id": ref, "room_id": room}})
    # Who names the room they are in means what who names none does.
    sent = alice.do("message.send", room_id=room, body="x", ext={"reply_to": {"ref_id": ref, "room_id": room}})
    shown = alice.do("timeline.get_ref", room_id=room, ref_id=sent["ref_id"])
    assert shown["ext.reply_to"] == {"ref_id": ref}


def test_only_the_last_replies_are_listed_and_none_of_who_is_no_member() -> None:
    alice, bob, room, ref = room_of_two()
    for count in range(MAX_REPLIES_SHOWN + 2):
        alice.clock.now_ms += 1
        alice.do("message.send", room_id=room, body=str(count), ext={"reply_to": ref})
    bob.hear(alice.published())
    alice.do("room.kick", room_id=room, entity=bob.id)
    bob.clock.now_ms += 1_000
    bob.do("message.send", room_id=room, body="late", ext={"reply_to": ref})
    alice.hear(bob.published())
    shown = alice.do("timeline.list", room_id=room, limit=200)["refs"]
    assert len(shown) == MAX_REPLIES_SHOWN + 3
    assert shown[0]["replies"] == [item["ref_id"] for item in shown[-MAX_REPLIES_SHOWN:]]


def test_what_others_wrote_may_be_anything() -> None:
    wrong: list[object] = [None, 1, [], {}, {"ref_id": None}, {"ref_id": NOBODYS, "room_id": 5}, {"ref_id": "x" * 1000}]
    for value in wrong:
        assert reply_target({"ext.reply_to": value}) is None
    assert reply_target({"ext.reply_to": {"ref_id": NOBODYS, "more": 1}}) == ReplyTarget(NOBODYS)

"""EXT-05: a reply to another room's message shows it to those who are in both rooms, and tells others nothing."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.extensions.cross_room import CROSS_ROOM_REF, MAX_PREVIEW_CHARS
from sublet.messaging.extensions.reply_to import REPLY_TO
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.keys import doc_id
from support.ref_signatures import verify_ref
from support.rooms import Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, REPLY_TO, CROSS_ROOM_REF)
NOBODYS = "ulid:01ARYZ6S41TSV4RRFFQ69G5FAV"
NO_ROOM = "019ac000-0000-7000-8000-000000000000"
HIDDEN = {"accessible": False}


def two_rooms() -> tuple[Peer, Peer, str, str, str]:
    """Return two peers, a room of both, a room of the first alone, and a message in the latter."""
    alice, bob = peers("alice", "bob", declarations=WITH)
    both, alone = shared_room(alice, bob), alice.do("room.create", name="alone")["room_id"]
    secret = alice.do("message.send", room_id=alone, body="secret")["ref_id"]
    alice.published()
    return alice, bob, both, alone, secret


def answer(peer: Peer, room: str, target_room: str, target: str) -> str:
    ext = {"reply_to": {"ref_id": target, "room_id": target_room}}
    ref: str = peer.do("message.send", room_id=room, body="see there", ext=ext)["ref_id"]
    return ref


def test_only_who_is_in_both_rooms_sees_what_is_answered() -> None:
    alice, bob, both, alone, secret = two_rooms()
    reply = answer(alice, both, alone, secret)
    bob.hear(alice.published())
    for peer, preview in ((alice, {"accessible": True, "body": "secret", "author": alice.id}), (bob, HIDDEN)):
        shown = peer.do("timeline.get_ref", room_id=both, ref_id=reply)
        assert shown["ext.reply_to"] == {"ref_id": secret, "room_id": alone, "window": "2026-11"}
        assert preview.items() <= shown["reply_preview"].items()
        asked = peer.do("crossroom.preview", room_id=alone, ref_id=secret)
        assert asked == shown["reply_preview"]
    assert bob.do("timeline.get_ref", room_id=both, ref_id=reply)["reply_preview"] == HIDDEN
    stored, keys = bob.engine.reading.ref(reply), bob.engine.keyring.keys(alice.id)
    assert stored is not None
    assert keys is not None
    verify_ref(both, stored, keys)


def test_a_room_that_is_not_there_answers_as_one_that_is_closed() -> None:
    alice, bob, both, alone, secret = two_rooms()
    asked = [(alone, secret), (alone, NOBODYS), (NO_ROOM, NOBODYS), ("x", "y"), (both, NOBODYS)]
    assert [bob.do("crossroom.preview", room_id=room, ref_id=ref) for room, ref in asked] == [HIDDEN] * 5
    # Somebody who is removed sees it no more, though their daemon still has it.
    ref = alice.do("message.send", room_id=both, body="ours")["ref_id"]
    bob.hear(alice.published())
    assert bob.do("crossroom.preview", room_id=both, ref_id=ref)["accessible"]
    alice.do("room.kick", room_id=both, entity=bob.id)
    bob.hear(alice.published())
    assert bob.do("crossroom.preview", room_id=both, ref_id=ref) == HIDDEN


def test_nobody_points_into_a_room_that_they_are_not_in() -> None:
    alice, bob, both, alone, secret = two_rooms()
    messages = set()
    for room, ref in ((alone, secret), (alone, NOBODYS), (NO_ROOM, NOBODYS)):
        with pytest.raises(SubletError) as refused:
            answer(bob, both, room, ref)
        messages.add(refused.value.message)
    assert len(messages) == 1
    assert bob.published() == []
    assert alice.bodies(both) == []


def test_a_preview_is_short_and_shows_nothing_of_what_was_deleted() -> None:
    alice, _, both, alone, secret = two_rooms()
    long = alice.do("message.send", room_id=alone, body="x" * 1_000)["ref_id"]
    preview = alice.do("crossroom.preview", room_id=alone, ref_id=long)
    assert (preview["body"], preview["cut"]) == ("x" * MAX_PREVIEW_CHARS, True)
    reply = answer(alice, both, alone, secret)
    alice.do("message.delete", room_id=alone, ref_id=secret)
    preview = alice.do("timeline.get_ref", room_id=both, ref_id=reply)["reply_preview"]
    assert (preview["status"], preview["body"]) == ("deleted_by_author", None)


def test_messages_that_answer_each_other_across_rooms_are_shown_once() -> None:
    alice, _, both, alone, secret = two_rooms()
    reply = answer(alice, both, alone, secret)
    timeline = doc_id("index", room_id=alone, shard_id="2026-11")
    alice.engine.writing.set_field(
        alice.id, timeline, secret, ("ext.reply_to",), {"ref_id": reply, "room_id": both, "window": "2026-11"}
    )
    alice.engine.commit()
    for room, ref, body in ((both, reply, "secret"), (alone, secret, "see there")):
        assert alice.do("timeline.get_ref", room_id=room, ref_id=ref)["reply_preview"]["body"] == body

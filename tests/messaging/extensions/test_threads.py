"""EXT-11: the messages of a thread, apart from the rest of the room."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.extensions.reply_to import REPLY_TO
from sublet.messaging.extensions.threads import THREADS, thread_root
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.keys import doc_id
from support.ref_signatures import verify_ref
from support.rooms import Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, REPLY_TO, THREADS)
NOBODYS = "ulid:01ARYZ6S41TSV4RRFFQ69G5FAV"


def say(peer: Peer, room: str, body: str, **ext: Any) -> str:
    """Send a message a millisecond after the last."""
    peer.clock.now_ms += 1
    ref: str = peer.do("message.send", room_id=room, body=body, ext=ext)["ref_id"]
    return ref


def bodies(page: dict[str, Any]) -> list[str]:
    return [ref["body"] for ref in page["refs"]]


def room_of_two() -> tuple[Peer, Peer, str]:
    alice, bob = peers("alice", "bob", declarations=WITH)
    return alice, bob, shared_room(alice, bob)


def test_a_thread_is_read_apart_on_both_sides() -> None:
    alice, bob, room = room_of_two()
    root, other = say(alice, room, "plan"), say(alice, room, "other")
    bob.hear(alice.published())
    bob.clock.now_ms = alice.clock.now_ms
    first = say(bob, room, "one", thread=root, reply_to=root)
    say(bob, room, "elsewhere", reply_to=other)
    alice.hear(bob.published())
    alice.clock.now_ms = bob.clock.now_ms
    last = say(alice, room, "two", thread={"root": first})  # who answers a reply stays in its thread
    bob.hear(alice.published())
    for peer in (alice, bob):
        assert bodies(peer.do("threads.list", room_id=room, root=root)) == ["one", "two"]
        assert bodies(peer.do("threads.list", room_id=room, root=other)) == []
        (begun,) = peer.do("threads.list", room_id=room)["refs"]
        assert (begun["body"], begun["last_thread_reply"]) == ("plan", last)
        assert len(peer.bodies(room)) == 5
        assert peer.do("timeline.get_ref", room_id=room, ref_id=last)["ext.thread"] == {"root": root}


def test_long_threads_are_read_by_pages() -> None:
    alice, _, room = room_of_two()
    root = say(alice, room, "root")
    for number in range(5):
        say(alice, room, str(number), thread=root)
    page = alice.do("threads.list", room_id=room, root=root, limit=3)
    assert bodies(page) == ["2", "3", "4"]
    page = alice.do("threads.list", room_id=room, root=root, limit=3, before=page["next_cursor"])
    assert (bodies(page), page["next_cursor"]) == (["0", "1"], None)
    with pytest.raises(SubletError, match="limit"):
        alice.do("threads.list", room_id=room, root=root, limit=201)


def test_a_thread_begins_with_a_message_of_the_room() -> None:
    alice, bob, room = room_of_two()
    alone = alice.do("room.create", name="alone")["room_id"]
    there = say(alice, alone, "there")
    alice.published()
    wrong: list[object] = [there, NOBODYS, "x", 1, {"root": 1}, {"ref_id": there}]
    for root in wrong:
        with pytest.raises(SubletError, match="begins with a message"):
            say(alice, room, "x", thread=root)
    assert alice.published() == []
    for ref in (there, NOBODYS):
        with pytest.raises(SubletError, match="no message"):
            alice.do("threads.list", room_id=room, root=ref)
    with pytest.raises(SubletError, match="no such room"):
        bob.do("threads.list", room_id=alone)


def test_only_its_author_puts_a_message_into_a_thread_and_has_signed_it() -> None:
    alice, bob, room = room_of_two()
    root, other = say(alice, room, "root"), say(alice, room, "other")
    reply = say(alice, room, "reply", thread=root)
    bob.hear(alice.published())
    timeline = doc_id("index", room_id=room, shard_id="2026-11")
    bob.engine.writing.set_field(bob.id, timeline, reply, ("ext.thread",), {"root": other})
    bob.engine.commit()
    alice.hear(bob.published())
    for peer in (alice, bob):
        assert bodies(peer.do("threads.list", room_id=room, root=root)) == ["reply"]
        assert bodies(peer.do("threads.list", room_id=room, root=other)) == []
    stored, keys = bob.engine.reading.ref(reply), bob.engine.keyring.keys(alice.id)
    assert stored is not None
    assert keys is not None
    verify_ref(room, stored, keys)


def test_replies_of_who_is_no_member_make_no_thread() -> None:
    alice, bob, room = room_of_two()
    root = say(alice, room, "root")
    bob.hear(alice.published())
    alice.do("room.kick", room_id=room, entity=bob.id)
    say(bob, room, "late", thread=root)
    alice.hear(bob.published())
    assert alice.do("threads.list", room_id=room)["refs"] == []
    assert alice.do("threads.list", room_id=room, root=root)["refs"] == []


def test_what_others_wrote_may_be_anything() -> None:
    wrong: list[object] = [None, 1, [], {}, NOBODYS, {"root": None}, {"root": "x"}, {"root": [NOBODYS]}]
    for value in wrong:
        assert thread_root({"ext.thread": value}) is None
    assert thread_root({"ext.thread": {"root": NOBODYS}}) == NOBODYS

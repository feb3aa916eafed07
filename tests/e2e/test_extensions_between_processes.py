"""Extensions between real processes over real Zenoh: rows of phase 2 of the specification's plan (ezagent 11)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import pytest

from support.ports import free_port
from support.room_processes import RoomProcess, room_process

T = TypeVar("T")


@dataclass
class People:
    """Two peers with the extensions, one without, and a room of the three."""

    alice: RoomProcess
    bob: RoomProcess
    plain: RoomProcess
    room: str

    def say(self, body: str, **ext: object) -> str:
        """Send as Alice; return the ref once the others have it."""
        ref: str = self.alice.ask("message.send", room_id=self.room, body=body, ext=ext)["ref_id"]
        for other in (self.bob, self.plain):
            other.until("message.new", ref_id=ref)
        return ref


def eventually(
    peer: RoomProcess, look: Callable[[], T], wanted: Callable[[T], bool], room: str, seconds: float = 60.0
) -> T:
    """Return what a peer shows once it is what is wanted, asking the others for it again and again."""
    until = time.monotonic() + seconds
    while not wanted(found := look()):
        assert time.monotonic() < until, found
        peer.ask("sync", room_id=room)
    return found


def body(peer: RoomProcess, room: str, ref: str) -> str:
    """Return what a message says there."""
    return str(peer.ask("timeline.get_ref", room_id=room, ref_id=ref)["body"])


def holds_all(words: set[str]) -> Callable[[str], bool]:
    """Return what tells whether a text has all of some words."""
    return lambda text: all(word in text for word in words)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Iterator[People]:
    directory, ports = tmp_path_factory.mktemp("rooms"), [free_port() for _ in range(3)]
    with ExitStack() as stack:
        alice = stack.enter_context(room_process("alice", directory, ports[0], extensions=True))
        bob = stack.enter_context(room_process("bob", directory, ports[1], ports[0], extensions=True))
        plain = stack.enter_context(room_process("plain", directory, ports[2], ports[0]))
        room = alice.ask("room.create", name="Work")["room_id"]
        for other in (bob, plain):
            alice.ask("room.invite", room_id=room, entity=other.id)
            other.until("room.member.joined", entity=other.id)
        yield People(alice, bob, plain, room)


def test_p2_1_a_message_arrives_as_it_was_signed(people: People) -> None:
    ref = people.say("as it was")
    sent = people.alice.ask("timeline.get_ref", room_id=people.room, ref_id=ref)
    assert (sent["body"], sent["content_type"], sent["author"]) == ("as it was", "immutable", people.alice.id)
    for other in (people.bob, people.plain):
        got = other.ask("timeline.get_ref", room_id=people.room, ref_id=ref)
        assert all(got[name] == sent[name] for name in ("body", "content", "content_id", "signature", "status"))


def test_p2_2_an_edited_message_says_something_else_everywhere(people: People) -> None:
    ref = people.say("first")
    people.bob.ask("watch.set", room_id=people.room, ref_id=ref)
    edited = people.alice.ask("mutable.update", room_id=people.room, ref_id=ref, body="second")
    people.bob.until("watch.ref_content_edited", watcher=people.bob.id, watched_ref=ref)
    since = people.bob.until("message.edited", ref_id=ref)
    people.alice.ask("mutable.update", room_id=people.room, ref_id=ref, body="third")
    people.bob.until("message.edited", since, ref_id=ref)
    eventually(people.bob, lambda: body(people.bob, people.room, ref), lambda text: text == "third", people.room)
    got = people.bob.ask("timeline.get_ref", room_id=people.room, ref_id=ref)
    assert (got["status"], got["content_type"]) == ("edited", "mutable")
    assert got["content_id"] == edited["content_id"]
    said = [one["body_snapshot"] for one in people.bob.ask("mutable.versions", room_id=people.room, ref_id=ref)]
    assert said == ["first", "second", "third"]
    people.bob.tell("mutable.update", room_id=people.room, ref_id=ref, body="forged")
    assert "only its author" in people.bob.line()["error"]
    # Who knows no extension sees that it was edited, and what it names; the rest is kept.
    assert people.plain.ask("timeline.get_ref", room_id=people.room, ref_id=ref)["status"] == "edited"


def test_p2_3_reactions_come_and_go(people: People) -> None:
    ref = people.say("react to me")
    people.bob.ask("reactions.add", room_id=people.room, ref_id=ref, emoji="\U0001f44d")
    people.alice.until("reaction.added", ref_id=ref, by=people.bob.id)
    shown = people.alice.ask("timeline.get_ref", room_id=people.room, ref_id=ref)
    assert shown["reactions"] == {"\U0001f44d": {"count": 1, "users": [people.bob.id]}}
    people.bob.ask("reactions.remove", room_id=people.room, ref_id=ref, emoji="\U0001f44d")
    people.alice.until("reaction.removed", ref_id=ref, by=people.bob.id)
    assert "reactions" not in people.alice.ask("timeline.get_ref", room_id=people.room, ref_id=ref)


def test_p2_4_a_channel_is_read_across_rooms(people: People) -> None:
    first = people.say("one", channels=["review"])
    other = people.alice.ask("room.create", name="Other", invite=[people.bob.id])["room_id"]
    second = people.alice.ask("message.send", room_id=other, body="two", ext={"channels": ["review"]})["ref_id"]
    people.bob.until("channel.activity", ref_id=second)
    for peer in (people.alice, people.bob):
        assert [ref["ref_id"] for ref in peer.ask("channels.refs", channel="review")["refs"]] == [first, second]
        assert [channel["room_count"] for channel in peer.ask("channels.list")] == [2]


def test_p2_6_a_profile_is_published_and_found(people: People) -> None:
    people.alice.ask(
        "profile.update",
        frontmatter={"entity_type": "agent", "display_name": "Reviewer"},
        body="## Capabilities\n\n- reviews Rust",
    )
    found = eventually(
        people.bob,
        lambda: people.bob.ask("discovery.search", query="rust"),
        lambda profiles: [one["entity_id"] for one in profiles] == [people.alice.id],
        people.room,
    )
    assert found == [people.bob.ask("profile.get", entity=people.alice.id)]
    assert found[0]["frontmatter"]["display_name"] == "Reviewer"


def test_p2_7_a_watch_tells_of_a_reply(people: People) -> None:
    ref = people.say("a task")
    people.bob.ask("watch.set", room_id=people.room, ref_id=ref, reason="processing_task")
    reply = people.say("more about it", reply_to=ref)
    people.bob.until("watch.ref_reply_added", watcher=people.bob.id, watched_ref=ref, new_ref_id=reply)


def test_p2_8_a_peer_of_level_0_keeps_what_it_does_not_know(people: People) -> None:
    root = people.say("root")
    reply = people.say("reply", reply_to=root, thread=root, channels=["design"])
    kept = people.plain.ask("timeline.get_ref", room_id=people.room, ref_id=reply)
    assert (kept["ext.reply_to"], kept["ext.thread"], kept["ext.channels"]) == (
        {"ref_id": root},
        {"root": root},
        ["design"],
    )
    there = people.bob.ask("threads.list", room_id=people.room, root=root)["refs"]
    assert [(ref["ref_id"], ref["body"]) for ref in there] == [(reply, "reply")]


def test_several_write_into_one_text_at_the_same_time(people: People) -> None:
    ref = people.say("middle")
    people.alice.ask("collab.update_acl", room_id=people.room, ref_id=ref, mode="room_members")
    eventually(
        people.bob,
        lambda: people.bob.ask("collab.get_acl", room_id=people.room, ref_id=ref)["mode"],
        lambda mode: mode == "room_members",
        people.room,
    )
    eventually(people.bob, lambda: body(people.bob, people.room, ref), lambda text: text == "middle", people.room)
    for number in range(5):
        # Both are told before either answers, so that they write at once.
        people.alice.tell("collab.edit", room_id=people.room, ref_id=ref, index=0, insert=f"a{number} ")
        people.bob.tell("collab.edit", room_id=people.room, ref_id=ref, index=6, insert=f" b{number}")
        assert "error" not in people.alice.line()
        assert "error" not in people.bob.line()
    wanted = {f"{who}{number}" for who in "ab" for number in range(5)}
    texts = {
        eventually(peer, partial(body, peer, people.room, ref), holds_all(wanted), people.room)
        for peer in (people.alice, people.bob)
    }
    assert len(texts) == 1


def test_a_peer_shows_who_it_is(people: People) -> None:
    shown = people.alice.ask("identity.verify_peer", entity_id=people.bob.id)
    assert shown.pop("verified_at")
    assert shown == people.bob.ask("identity.whoami")
    nobody = people.bob.id.replace("@bob", "@nobody")
    people.alice.tell("identity.verify_peer", entity_id=nobody)
    assert "did not answer" in people.alice.line()["error"]
    assert people.bob.ask("status")["level"] == people.alice.ask("status")["level"]
    assert people.plain.ask("status")["level"] == 0


def test_p2_10_whoever_is_a_member_annotates_under_their_own_name(people: People) -> None:
    ref = people.say("annotate me")
    key = f"x:{people.bob.id}"
    people.bob.ask("annotation.add", room_id=people.room, ref_id=ref, name="reactions", key=key, value=1)
    people.alice.until("reaction.added", ref_id=ref, by=people.bob.id)
    people.bob.tell(
        "annotation.add", room_id=people.room, ref_id=ref, name="reactions", key=f"x:{people.alice.id}", value=1
    )
    assert "of your own" in people.bob.line()["error"]
    assert set(people.alice.ask("annotation.list", room_id=people.room, ref_id=ref)["ext.reactions"]) == {key}

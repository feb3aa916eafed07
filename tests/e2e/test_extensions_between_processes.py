"""Extensions between real processes over real Zenoh: rows of phase 2 of the specification's plan (ezagent 11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from support.room_processes import RoomProcess, free_port, room_process


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

"""Who of ours tells what differs from what we have of a room."""

from __future__ import annotations

from sublet.messaging.attending.subscriptions import Subscriptions
from sublet.messaging.ports.network import PeerQuery, Sample
from sublet.protocol.ezagent.keys import doc_id
from support.memory_network import MemoryHub
from support.rooms import local_entity

ROOM = "01a2212b-1000-7167-9394-011daa814786"
ALICE, BOT = (local_entity(name, 1).record.entity_id for name in ("alice", "bot"))


def test_one_of_ours_answers_at_a_time_and_nobody_once_the_room_is_left() -> None:
    hub = MemoryHub()
    network, other = hub.join(), hub.join()

    def unheard(_: Sample | PeerQuery) -> None:
        raise AssertionError("nothing is published")

    subscriptions = Subscriptions(network, unheard, lambda query: query.reply(b"x"), unheard, unheard, lambda _: [])

    def answering() -> list[str]:
        return [one for one in (ALICE, BOT) if other.query(doc_id("tree", room_id=ROOM, entity_id=one), b"", 1.0)]

    subscriptions.speaker(ROOM, ALICE)
    assert answering() == [], "the room is not attended to yet"
    subscriptions.room(ROOM)
    for speaker in (ALICE, ALICE, BOT):
        subscriptions.speaker(ROOM, speaker)
        assert answering() == [speaker]
    subscriptions.leave(ROOM)
    assert answering() == []

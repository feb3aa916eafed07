"""EXT-03: who may react, what everybody sees, and what they are told."""

from __future__ import annotations

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.extensions.reactions import REACTIONS, parse_key
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, REACTIONS)
FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def room_of_two() -> tuple[Peer, Peer, str, str]:
    alice, bob = peers("alice", "bob", declarations=WITH)
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="hello")["ref_id"]
    bob.hear(alice.published())
    return alice, bob, room, ref


def told(peer: Peer) -> list[tuple[str, object, object]]:
    events = [event for event in peer.engine.events.since(0) if event.kind.startswith("reaction.")]
    return [(event.kind, event.data["emoji"], event.data["by"]) for event in events]


def test_reactions_of_two_at_once_are_both_there_and_can_be_taken_back() -> None:
    alice, bob, room, ref = room_of_two()
    assert bob.do("reactions.add", room_id=room, ref_id=ref, emoji=FAMILY) == {"added": True}
    assert alice.do("reactions.add", room_id=room, ref_id=ref, emoji=FAMILY) == {"added": True}
    from_bob, from_alice = bob.published(), alice.published()
    alice.hear(from_bob)
    bob.hear(from_alice)
    for peer in (alice, bob):
        shown = peer.do("timeline.get_ref", room_id=room, ref_id=ref)["reactions"]
        assert shown.keys() == {FAMILY}
        assert (shown[FAMILY]["count"], set(shown[FAMILY]["users"])) == (2, {alice.id, bob.id})
        assert set(told(peer)) == {("reaction.added", FAMILY, alice.id), ("reaction.added", FAMILY, bob.id)}
    assert bob.do("reactions.add", room_id=room, ref_id=ref, emoji=FAMILY) == {"added": False}
    assert bob.do("reactions.remove", room_id=room, ref_id=ref, emoji=FAMILY) == {"removed": True}
    assert bob.do("reactions.remove", room_id=room, ref_id=ref, emoji=FAMILY) == {"removed": False}
    alice.hear(bob.published())
    for peer in (alice, bob):
        shown = peer.do("timeline.list", room_id=room)["refs"][0]["reactions"]
        assert shown == {FAMILY: {"count": 1, "users": [alice.id]}}
        assert told(peer)[-1] == ("reaction.removed", FAMILY, bob.id)


def test_nobody_reacts_in_the_name_of_another() -> None:
    alice, bob, room, ref = room_of_two()
    forged = f"\u2764:{alice.id}"
    with pytest.raises(SubletError, match="of your own"):
        bob.do("annotation.add", room_id=room, ref_id=ref, name="reactions", key=forged, value=1)
    # A daemon that lets its entity do so all the same writes what counts nowhere and is told to nobody.
    mallory = Peer("mallory", 2000)
    mallory.meet(alice, bob)
    for peer in (alice, bob):
        peer.meet(mallory)
    alice.do("room.invite", room_id=room, entity=mallory.id)
    mallory.catch_up(alice, room)
    timeline = doc_id("index", room_id=room, shard_id="2026-11")
    mallory.engine.writing.set_field(mallory.id, timeline, ref, ("ext.reactions", forged), 1)
    mallory.engine.commit()
    bob.hear(alice.published())
    out = mallory.published()
    for peer in (alice, bob):
        peer.hear(out)
        assert peer.refused() == {}
        assert "reactions" not in peer.do("timeline.get_ref", room_id=room, ref_id=ref)
        assert told(peer) == []
    # Nor does it keep the one who was named from reacting.
    assert alice.do("reactions.add", room_id=room, ref_id=ref, emoji="\u2764") == {"added": True}
    bob.hear(alice.published())
    assert bob.do("timeline.get_ref", room_id=room, ref_id=ref)["reactions"]["\u2764"]["users"] == [alice.id]


def test_what_is_no_reaction() -> None:
    alice, bob, room, ref = room_of_two()
    for emoji in ("", "a b", "\u202e", "x@y", "\n", "x", "no", "👍👍", "👍x", "1", "🇩", "👍\u200d", "✊" * 33):
        with pytest.raises(SubletError, match="one emoji"):
            bob.do("reactions.add", room_id=room, ref_id=ref, emoji=emoji)
    with pytest.raises(SubletError, match=r"without ext\.reactions"):
        alice.do("message.send", room_id=room, body="like me", ext={"reactions": {f"x:{alice.id}": 1}})
    with pytest.raises(SubletError, match="no message"):
        bob.do("reactions.add", room_id=room, ref_id="ulid:01ARYZ6S41TSV4RRFFQ69G5FAV", emoji="👍")
    alice.do("message.delete", room_id=room, ref_id=ref)
    with pytest.raises(SubletError, match="deleted"):
        alice.do("reactions.add", room_id=room, ref_id=ref, emoji="👍")


def test_keys_of_reactions() -> None:
    assert parse_key(":smile::@alice:example.com") == (":smile:", "@alice:example.com")
    for key in ("@alice:example.com", ":@alice:example.com", "smile", "@x:@alice:example.com", "x y:@a:b"):
        assert parse_key(key) is None


@pytest.mark.parametrize(
    "emoji",
    [
        "👍",
        "👍🏽",
        "\u2764",
        "\u2764\ufe0f",
        FAMILY,
        "🇩🇪",
        "1\ufe0f\u20e3",
        "‼",
        "↔",
        "🏴\U000e0067\U000e0062\U000e007f",
    ],
)
def test_one_emoji_of_any_form_is_a_reaction(emoji: str) -> None:
    _, bob, room, ref = room_of_two()
    assert bob.do("reactions.add", room_id=room, ref_id=ref, emoji=emoji) == {"added": True}
    assert emoji in bob.do("timeline.get_ref", room_id=room, ref_id=ref)["reactions"]


def test_what_people_type_for_one_stands_for_it_and_words_of_earlier_versions_go_away() -> None:
    _, bob, room, ref = room_of_two()
    bob.do("reactions.add", room_id=room, ref_id=ref, emoji="+1")
    assert list(bob.do("timeline.get_ref", room_id=room, ref_id=ref)["reactions"]) == ["👍"]
    assert bob.do("reactions.remove", room_id=room, ref_id=ref, emoji="+1") == {"removed": True}
    bob.do("annotation.add", room_id=room, ref_id=ref, name="reactions", key=f"nice:{bob.id}", value=1)
    assert list(bob.do("timeline.get_ref", room_id=room, ref_id=ref)["reactions"]) == ["nice"]
    assert bob.do("reactions.remove", room_id=room, ref_id=ref, emoji="nice") == {"removed": True}

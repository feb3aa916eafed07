"""EXT-06: one channel over many rooms, and never over a room that the reader is not in."""

from __future__ import annotations

from typing import Any

import pytest

from sublet.messaging.builtins import BUILT_INS
from sublet.messaging.declaring.declaration import Declaration
from sublet.messaging.extensions.channels import CHANNELS, MAX_CHANNELS_PER_REF, channel_name, channels_of
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.keys import doc_id
from support.rooms import NOW_MS, Peer, peers, shared_room

WITH: tuple[Declaration, ...] = (*BUILT_INS, CHANNELS)


def say(peer: Peer, room: str, at: int, body: str, *channels: str) -> str:
    """Send a message at a time of its own."""
    peer.clock.now_ms = NOW_MS + at
    ref: str = peer.do("message.send", room_id=room, body=body, ext={"channels": list(channels)})["ref_id"]
    return ref


def bodies(page: dict[str, Any]) -> list[str]:
    return [ref["body"] for ref in page["refs"]]


def two_rooms() -> tuple[Peer, Peer, str, str]:
    """Return two peers with a room of both and one of the first alone, with messages that alternate."""
    alice, bob = peers("alice", "bob", declarations=WITH)
    both, alone = shared_room(alice, bob), alice.do("room.create", name="alone")["room_id"]
    for at in range(6):
        say(alice, (both, alone)[at % 2], at, str(at), "Review", "all")
    say(alice, both, 10, "another", "design")
    alice.do("message.send", room_id=both, body="in none")
    bob.hear(out for out in alice.published() if both in out.key)
    return alice, bob, both, alone


def test_a_channel_merges_the_rooms_of_its_reader_by_time() -> None:
    alice, bob, both, _ = two_rooms()
    assert bodies(alice.do("channels.refs", channel="#review")) == ["0", "1", "2", "3", "4", "5"]
    assert bodies(bob.do("channels.refs", channel="review")) == ["0", "2", "4"]
    assert bodies(bob.do("channels.refs", channel="nothing")) == []
    # What a clock that is behind has written stands behind what its writer had seen.
    bob.clock.now_ms = NOW_MS + 3
    say(bob, both, 3, "late", "review")
    alice.hear(bob.published())
    assert bodies(alice.do("channels.refs", channel="review")) == ["0", "1", "2", "3", "4", "5", "late"]


def test_pages_go_back_without_a_gap_or_a_repetition() -> None:
    alice, _, _, _ = two_rooms()
    page = alice.do("channels.refs", channel="all", limit=4)
    assert bodies(page) == ["2", "3", "4", "5"]
    last = alice.do("channels.refs", channel="all", limit=4, before=page["next_cursor"])
    assert (bodies(last), last["next_cursor"]) == (["0", "1"], None)
    with pytest.raises(SubletError, match="limit"):
        alice.do("channels.refs", channel="all", limit=0)


def test_the_list_tells_of_the_readers_rooms_only() -> None:
    alice, bob, both, alone = two_rooms()
    say(alice, alone, 20, "hidden", "secret")
    listed = {entry["channel"]: entry for entry in alice.do("channels.list")}
    assert {name: entry["room_count"] for name, entry in listed.items()} == {
        "secret": 1,
        "design": 1,
        "review": 2,
        "all": 2,
    }
    assert [entry["channel"] for entry in alice.do("channels.list")][:2] == ["secret", "design"]
    assert {entry["channel"]: entry["room_count"] for entry in bob.do("channels.list")} == {
        "design": 1,
        "review": 1,
        "all": 1,
    }
    assert bob.kinds().count("channel.activity") == 3 * 2 + 1
    # Who is removed sees nothing of the room any more.
    alice.do("room.kick", room_id=both, entity=bob.id)
    bob.hear(out for out in alice.published() if both in out.key)
    assert bob.do("channels.list") == []
    assert bodies(bob.do("channels.refs", channel="review")) == []


def test_a_channel_is_gone_with_its_last_message() -> None:
    alice, bob, both, _ = two_rooms()
    ref = alice.do("channels.refs", channel="design")["refs"][0]["ref_id"]
    alice.do("message.delete", room_id=both, ref_id=ref)
    bob.hear(alice.published())
    for peer in (alice, bob):
        assert "design" not in {entry["channel"] for entry in peer.do("channels.list")}
    shown = bob.do("channels.refs", channel="design")["refs"]
    assert [(item["status"], item.get("body")) for item in shown] == [("deleted_by_author", None)]


def test_admins_name_channels_in_the_rooms_config() -> None:
    alice, bob, both, _ = two_rooms()
    hints = [{"id": "review", "name": "Code review", "created_by": alice.id}, "nonsense", {"id": 1}]
    with pytest.raises(SubletError, match="may not change"):
        bob.do("room.update_config", room_id=both, changes={"ext.channels.hints": hints})
    alice.do("room.update_config", room_id=both, changes={"ext.channels.hints": hints})
    bob.hear(alice.published())
    for peer in (alice, bob):
        named = {entry["channel"]: entry.get("name") for entry in peer.do("channels.list")}
        assert (named["review"], named["all"]) == ("Code review", None)


def test_names_are_checked_and_written_in_one_form() -> None:
    alice, _, both, _ = two_rooms()
    ref = say(alice, both, 30, "x", "#Code-Review", "code-review", "B\u00dcRO", "Bu\u0308ro")
    shown = alice.do("timeline.get_ref", room_id=both, ref_id=ref)
    assert shown["ext.channels"] == ["code-review", "b\u00fcro"]
    assert "ext.channels" not in alice.do("timeline.get_ref", room_id=both, ref_id=say(alice, both, 31, "y"))
    wrong: list[object] = ["review", ["a b"], [""], ["#"], [1], ["x" * 65], ["a/b"], [str(n) for n in range(17)]]
    for value in wrong:
        with pytest.raises(SubletError, match="names of letters"):
            alice.do("message.send", room_id=both, body="x", ext={"channels": value})


def test_what_others_wrote_may_be_anything() -> None:
    for value in (None, "review", {"a": 1}, [1, None, ["x"], "A", "a b", "#a"]):
        assert channels_of({"ext.channels": value}) == []
    many = [f"c{number}" for number in range(100)]
    assert channels_of({"ext.channels": [*many, *many]}) == many[:MAX_CHANNELS_PER_REF]
    assert channel_name("#") is None


def test_nobody_else_puts_a_message_into_a_channel() -> None:
    alice, bob, both, _ = two_rooms()
    ref = bob.do("channels.refs", channel="design")["refs"][0]
    timeline = doc_id("index", room_id=both, shard_id=ref["shard_id"])
    bob.engine.writing.set_field(bob.id, timeline, ref["ref_id"], ("ext.channels",), ["elsewhere"])
    bob.engine.commit()
    alice.hear(bob.published())
    for peer in (alice, bob):
        shown = peer.do("timeline.get_ref", room_id=both, ref_id=ref["ref_id"])
        assert shown["ext.channels"] == ["design"]

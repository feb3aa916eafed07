"""What can be done with rooms, and by whom, on both sides."""

from __future__ import annotations

import pytest

from sublet.messaging.declaring.operations import run_operation
from sublet.protocol.errors import SubletError
from sublet.protocol.ezagent.shards import REFS_PER_SHARD
from support.rooms import NOW_MS, Peer, peers, shared_room


@pytest.fixture
def trio() -> tuple[Peer, Peer, Peer, str]:
    """Return an owner and a member, and somebody outside who has the room's config."""
    alice, bob, eve = peers("alice", "bob", "eve")
    room = alice.do("room.create", name="Work", invite=[bob.id])["room_id"]
    out = alice.published()
    for peer in (bob, eve):
        peer.engine.here.want(room)
        peer.hear(out)
    return alice, bob, eve, room


def test_a_member_sees_the_room_and_a_stranger_does_not(trio: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, eve, room = trio
    assert [item["name"] for item in bob.do("room.list")] == ["Work"]
    assert bob.do("room.get", room_id=room)["members"][alice.id] == {"role": "owner", "power": 100}
    assert eve.do("room.list") == []
    for operation in ("room.get", "timeline.list", "room.members"):
        with pytest.raises(SubletError, match="not a member"):
            eve.do(operation, room_id=room)
    with pytest.raises(SubletError, match="not a member"):
        eve.do("message.send", room_id=room, body="hello")


def test_only_an_admin_changes_the_config(trio: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, _, room = trio
    with pytest.raises(SubletError, match="may not change"):
        bob.do("room.update_config", room_id=room, changes={"name": "Play"})
    alice.do("room.update_config", room_id=room, changes={"name": "Play", "membership.policy": "open"})
    bob.hear(alice.published())
    assert bob.do("room.get", room_id=room)["name"] == "Play"
    assert bob.kinds().count("room.config.updated") == 2


def test_an_open_room_is_joined_a_closed_one_is_knocked_at(trio: tuple[Peer, Peer, Peer, str]) -> None:
    alice, _, eve, room = trio
    with pytest.raises(SubletError, match="may not change"):
        eve.do("room.join", room_id=room)
    alice.do("room.update_config", room_id=room, changes={"membership.policy": "knock"})
    eve.hear(alice.published())
    eve.do("room.knock", room_id=room, text="let me in")
    alice.hear(eve.published())
    assert alice.do("room.get", room_id=room)["config"][f"membership.knocks.{eve.id}"] == {"text": "let me in"}
    alice.do("room.invite", room_id=room, entity=eve.id)
    eve.hear(alice.published())
    assert eve.do("room.join", room_id=room)["name"] == "Work"
    assert f"membership.knocks.{eve.id}" not in eve.do("room.get", room_id=room)["config"]


def test_who_leaves_is_out_and_the_owner_stays(trio: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, _, room = trio
    bob.do("room.leave", room_id=room)
    alice.hear(bob.published())
    assert alice.do("room.members", room_id=room) == {alice.id: "owner"}
    assert bob.do("room.list") == []
    with pytest.raises(SubletError, match="last owner"):
        alice.do("room.leave", room_id=room)


def test_a_banned_member_does_not_come_back(trio: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, _, room = trio
    alice.do("room.update_config", room_id=room, changes={"membership.policy": "open"})
    alice.do("room.kick", room_id=room, entity=bob.id, reason="spam", ban=True)
    bob.hear(alice.published())
    with pytest.raises(SubletError, match="may not change"):
        bob.do("room.join", room_id=room)
    event = next(event for event in bob.engine.events.since(0) if event.kind == "room.member.left")
    assert (event.data["entity"], event.data["by"], event.data["reason"]) == (bob.id, alice.id, "spam")


def test_less_power_silences_from_then_on(trio: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, _, room = trio
    bob.do("message.send", room_id=room, body="before")
    alice.hear(bob.published())
    alice.do("room.update_config", room_id=room, changes={"power_levels.events_default": 50})
    bob.do("message.send", room_id=room, body="at the same time")
    alice.hear(bob.published())
    bob.hear(alice.published())
    assert alice.bodies(room) == bob.bodies(room) == ["before"]
    with pytest.raises(SubletError, match="more power"):
        bob.do("message.send", room_id=room, body="after")
    alice.do("room.set_power", room_id=room, entity=bob.id, level=50)
    bob.hear(alice.published())
    bob.do("message.send", room_id=room, body="again")


def test_a_month_has_dense_shards_and_pages_run_through_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublet.messaging.opening.shards.REFS_PER_SHARD", 40)
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    for number in range(100):
        run_operation(
            alice.engine.registry.operations,
            alice.engine.operating,
            alice.id,
            "message.send",
            {"room_id": room, "body": str(number)},
        )
    alice.engine.commit()
    bob.hear(alice.published())
    assert bob.engine.shards.names(room) == ["2026-11", "2026-11-001", "2026-11-002"]
    found: list[str] = []
    before = None
    while True:
        page = bob.do("timeline.list", room_id=room, limit=30, before=before)
        found = [ref["body"] for ref in page["refs"]] + found
        before = page["next_cursor"]
        if before is None:
            break
    assert found == [str(number) for number in range(100)]
    first = bob.do("timeline.list", room_id=room, limit=1, before=None)["refs"][0]["ref_id"]
    assert bob.do("timeline.list", room_id=room, after=first)["refs"] == []
    assert REFS_PER_SHARD == 4096


def test_the_next_month_has_a_shard_of_its_own_and_the_old_one_still_takes_annotations() -> None:
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    ref = alice.do("message.send", room_id=room, body="old")["ref_id"]
    alice.clock.now_ms = NOW_MS + 10 * 24 * 3_600_000
    alice.do("message.send", room_id=room, body="new")
    alice.do("message.delete", room_id=room, ref_id=ref)
    bob.hear(alice.published())
    assert bob.engine.shards.names(room) == ["2026-11", "2026-12"]
    refs = bob.do("timeline.list", room_id=room)["refs"]
    assert [(ref.get("body"), ref["status"]) for ref in refs] == [(None, "deleted_by_author"), ("new", "active")]


def test_a_peer_whose_clock_is_ahead_does_not_take_the_month_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sublet.messaging.opening.shards.REFS_PER_SHARD", 2)
    alice, bob = peers("alice", "bob")
    room = shared_room(alice, bob)
    for number in range(3):
        alice.do("message.send", room_id=room, body=str(number))
    bob.hear(alice.published())
    bob.clock.now_ms = NOW_MS + 40 * 24 * 3_600_000
    bob.do("message.send", room_id=room, body="from next year")
    alice.hear(bob.published())
    alice.do("message.send", room_id=room, body="3")
    assert alice.engine.shards.names(room) == ["2026-11", "2026-11-001", "2027-01"]
    assert alice.bodies(room) == ["0", "1", "2", "from next year", "3"]


def test_a_full_month_says_so() -> None:
    (alice,) = peers("alice")
    room = shared_room(alice)
    alice.do("room.update_config", room_id=room, changes={"timeline": {"max_refs_per_window": 2}})
    alice.do("message.send", room_id=room, body="1")
    alice.do("message.send", room_id=room, body="2")
    with pytest.raises(SubletError, match="as many messages"):
        alice.do("message.send", room_id=room, body="3")


@pytest.mark.parametrize(
    "arguments", [{"body": ""}, {"body": "x" * 65_537}, {"body": "x", "format": "text/rtf"}, {"body": "\ud800"}]
)
def test_what_is_no_message_is_refused(arguments: dict[str, str]) -> None:
    (alice,) = peers("alice")
    room = shared_room(alice)
    with pytest.raises(SubletError):
        alice.do("message.send", room_id=room, **arguments)
    assert alice.bodies(room) == []


def test_who_was_given_power_comes_back_into_an_open_room_after_a_kick(trio: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, _, room = trio
    alice.do("room.set_power", room_id=room, entity=bob.id, level=10)
    alice.do("room.update_config", room_id=room, changes={"membership.policy": "open"})
    alice.do("room.kick", room_id=room, entity=bob.id)
    bob.hear(alice.published())
    assert bob.do("room.list") == []
    bob.do("room.join", room_id=room)
    alice.hear(bob.published())
    for peer in (alice, bob):
        assert peer.do("room.members", room_id=room) == {alice.id: "owner", bob.id: "member"}


def test_a_knock_is_told_and_answered_with_no(trio: tuple[Peer, Peer, Peer, str]) -> None:
    alice, bob, eve, room = trio
    alice.do("room.update_config", room_id=room, changes={"membership.policy": "knock"})
    out = alice.published()
    for peer in (bob, eve):
        peer.hear(out)
    eve.do("room.knock", room_id=room, text="it is Eve")
    alice.hear(eve.published())
    knocks = [event.data for event in alice.engine.events.since(0) if event.kind == "room.knocked"]
    assert [(knock["entity"], knock["text"]) for knock in knocks] == [(eve.id, "it is Eve")]
    with pytest.raises(SubletError, match="nobody of that name"):
        alice.do("room.decline", room_id=room, entity=bob.id)
    with pytest.raises(SubletError):
        bob.do("room.decline", room_id=room, entity=eve.id)
    alice.do("room.decline", room_id=room, entity=eve.id)
    assert not any(name.startswith("membership.knocks") for name in alice.do("room.get", room_id=room)["config"])
    eve.hear(alice.published())
    eve.do("room.knock", room_id=room, text="please")
    alice.hear(eve.published())
    config = alice.do("room.get", room_id=room)["config"]
    assert config[f"membership.knocks.{eve.id}"] == {"text": "please"}

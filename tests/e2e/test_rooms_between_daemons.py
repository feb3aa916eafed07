"""Rooms between two real paired daemons, by the commands that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon, two_daemons, wait_for

WAIT_SECONDS = 30


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon]]:
    with two_daemons(tmp_path) as daemons:
        yield daemons


def until_member(daemon: Daemon, room: str) -> None:
    wait_for(lambda: room in [one["room_id"] for one in daemon.json("room", "list")], WAIT_SECONDS, "the invited room")


def watched(daemon: Daemon, cursor: int, kind: str, **data: object) -> int:
    """Watch until there is such an event; return the cursor after it."""
    for _ in range(20):
        answer = daemon.json("watch", "--since", str(cursor), "--wait", "20")
        cursor = answer["cursor"]
        for event in answer["events"]:
            if event["kind"] == kind and all(event.get(name) == value for name, value in data.items()):
                return cursor
    raise AssertionError(f"no {kind}")


def test_paired_daemons_talk_in_a_room_and_again_after_a_restart(pair: tuple[Daemon, Daemon]) -> None:
    alice, bob = pair
    hers, his = (daemon.json("whoami")["entity_id"] for daemon in pair)
    assert hers == f"@human:{alice.json('status')['node_id']}" != his
    assert isinstance(alice.json("status")["ezagent_level"], int)

    room = alice.json("room", "create", "Work")["room_id"]
    alice.run("send", room, "before Bob came")
    for command in (("read", room), ("room", "show", room), ("send", room, "let me in")):
        refused = bob.run(*command, "--json", check=None)
        assert refused.returncode != 0
        assert "error" in refused.stdout
        assert "before Bob came" not in refused.stdout
    assert bob.json("room", "list") == []
    alice.run("room", "invite", room, his)
    until_member(bob, room)
    assert bob.json("room", "show", "Work")["roles"] == {hers: "owner", his: "member"}

    sent = alice.json("send", room, "hello Bob")
    assert sent["receipt"] == "queued"
    cursor = watched(bob, 0, "message.new", author=hers, ref_id=sent["ref_id"])
    answer = bob.json("send", "Work", "hello Alice", "--reply-to", sent["ref_id"])
    watched(alice, 0, "message.new", author=his)
    _, first, second = alice.json("read", room)
    assert (first["author"], first["body"], first["ref_id"]) == (hers, "hello Bob", sent["ref_id"])
    assert (second["author"], second["body"], second["ref_id"]) == (his, "hello Alice", answer["ref_id"])
    assert second["ext"]["reply_to"]["ref_id"] == sent["ref_id"]
    assert second["status"] == first["status"] == "active"
    assert [one["body"] for one in bob.json("read", room)] == ["before Bob came", "hello Bob", "hello Alice"]
    page = bob.json("read", room, "--before", answer["ref_id"], "--limit", "1")
    assert [one["body"] for one in page] == ["hello Bob"]

    # To somebody, without any room: it is opened here, and found there by whom it is with.
    direct = alice.json("send", "bob", "a word, Bob")
    wait_for(lambda: direct["room_id"] in [one["room_id"] for one in bob.json("room", "list")], WAIT_SECONDS, "it")
    assert bob.json("send", hers, "yes?")["room_id"] == direct["room_id"]
    wait_for(lambda: [one["body"] for one in alice.json("read", "bob")][1:] == ["yes?"], WAIT_SECONDS, "the answer")
    assert alice.json("send", f"@human:{his.partition(':')[2]}", "good")["room_id"] == direct["room_id"]
    assert alice.json("read", "@mcp:bob", check=None)["error"]["code"] == "NOT_FOUND"

    bob.run("down")
    bob.wait_gone()
    late = alice.json("send", room, "while you were away")
    bob.up()
    watched(bob, cursor, "message.new", ref_id=late["ref_id"])
    bob.run("room", "leave", room)
    watched(alice, 0, "room.member.left", entity=his)
    assert "error" in bob.json("send", room, "one more", check=None)
    assert alice.json("room", "show", room)["roles"] == {hers: "owner"}

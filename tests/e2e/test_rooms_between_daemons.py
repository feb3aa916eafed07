"""Rooms between two real paired daemons, by the commands that scripts rely on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon_rooms import WAIT_SECONDS, until_event, until_known
from support.daemons import two_daemons, wait_for
from support.typed_commands import Typing


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Typing, Typing]]:
    with two_daemons(tmp_path) as (one, other):
        yield Typing(one), Typing(other)


def test_paired_daemons_talk_in_a_room_and_again_after_a_restart(pair: tuple[Typing, Typing]) -> None:
    alice, bob = pair
    hers, his = (who.json("whoami")["entity_id"] for who in pair)
    assert hers == f"@human:{alice.json('status')['node_id']}" != his
    assert isinstance(alice.json("status")["ezagent_level"], int)

    room = alice.json("room", "create", "Work")["room_id"]
    alice.run("send", room, "before Bob came")
    for command in (("read", room), ("room", "show", room), ("send", room, "let me in")):
        refused = bob.run(*command, "--json", fails=True)
        assert "error" in refused
        assert "before Bob came" not in refused
    assert bob.json("room", "list") == []
    alice.run("room", "invite", room, his)
    until_known(bob, room)
    assert bob.json("room", "show", "Work")["roles"] == {hers: "owner", his: "member"}

    sent = alice.json("send", room, "hello Bob")
    assert sent["receipt"] == "queued"
    cursor = until_event(bob, 0, "message.new", author=hers, ref_id=sent["ref_id"])
    answer = bob.json("send", "Work", "hello Alice", "--reply-to", sent["ref_id"])
    until_event(alice, 0, "message.new", author=his)
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
    until_known(bob, direct["room_id"])
    # What is written before this is there is written at the same time, and may stand before it.
    until_event(bob, 0, "message.new", ref_id=direct["ref_id"])
    assert bob.json("send", hers, "yes?")["room_id"] == direct["room_id"]
    wait_for(lambda: [one["body"] for one in alice.json("read", "bob")][1:] == ["yes?"], WAIT_SECONDS, "the answer")
    assert alice.json("send", f"@human:{his.partition(':')[2]}", "good")["room_id"] == direct["room_id"]
    assert alice.refused("read", "@mcp:bob") == "NOT_FOUND"

    bob.daemon.run("down")
    bob.daemon.wait_gone()
    late = alice.json("send", room, "while you were away")
    bob.daemon.up()
    until_event(bob, cursor, "message.new", ref_id=late["ref_id"])
    bob.run("room", "leave", room)
    until_event(alice, 0, "room.member.left", entity=his)
    assert bob.refused("send", room, "one more") == "NOT_FOUND"
    assert alice.json("room", "show", room)["roles"] == {hers: "owner"}

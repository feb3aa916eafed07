"""Two homes that speak as one person, with a third daemon in their room: by the commands that people type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.daemon_rooms import WAIT_SECONDS, bodies, until_known
from support.daemons import Daemon, pair, wait_for
from support.typed_commands import Typing

PLANTED = "the planted words"


@pytest.fixture
def three(tmp_path: Path) -> Iterator[tuple[Typing, Typing, Typing]]:
    """Run the home of a person, a laptop of the same person, and another person's daemon that knows the home alone."""
    with ExitStack() as stack:
        home, laptop, bob = (Daemon(tmp_path / name) for name in ("home", "laptop", "bob"))
        for daemon in (home, laptop, bob):
            stack.callback(daemon.down)
            daemon.up()
        pair(home, bob, "bob")
        pair(home, laptop, "laptop")
        yield Typing(home), Typing(laptop), Typing(bob)


def name_of(who: Typing, node_id: str) -> str:
    """Return what a daemon calls its peer."""
    return next(str(one["name"]) for one in who.json("peers", "list")["peers"] if one["node_id"] == node_id)


def added(home: Typing, laptop: Typing) -> str:
    """Make the laptop a device of the person at home; return as whom both speak."""
    me: str = home.json("whoami")["entity_id"]
    peer = name_of(laptop, home.json("status")["node_id"])
    link = laptop.json("device", "link", peer, "--name", "laptop")
    assert link["entity_id"] == me
    assert laptop.json("device", "list")["waits_for"] == me
    made = home.json("device", "add", link["link"], "--yes")
    assert (made["name"], made["fingerprint"]) == ("laptop", link["fingerprint"])
    wait_for(lambda: laptop.json("whoami")["entity_id"] == me, WAIT_SECONDS, "the device")
    return me


def test_a_laptop_speaks_as_the_person_at_home_until_it_is_removed(three: tuple[Typing, Typing, Typing]) -> None:
    home, laptop, bob = three
    his = bob.json("whoami")["entity_id"]
    made = home.json("room", "create", "Work")
    room = made["room_id"]
    assert made["encryption"] == home.json("room", "show", room)["encryption"] == "members"
    home.run("room", "invite", room, his)
    until_known(bob, room)
    home.run("send", room, "before")
    me = added(home, laptop)
    until_known(laptop, room)
    wait_for(lambda: bodies(laptop, room) == ["before"], WAIT_SECONDS, "what was said before")
    laptop.run("send", room, "of the laptop")
    bob.run("send", room, "of bob")
    for who in three:
        wait_for(lambda who=who: sorted(bodies(who, room)) == ["before", "of bob", "of the laptop"], 90, "all of it")
    assert {one["body"]: one["author"] for one in bob.json("read", room)}["of the laptop"] == me
    assert laptop.json("room", "show", room)["roles"] == {me: "owner", his: "member"}

    gone = home.json("device", "remove", "laptop")
    assert gone["name"] == "laptop"
    home.run("send", room, PLANTED)
    wait_for(lambda: PLANTED in bodies(bob, room), WAIT_SECONDS, "what was said after")
    wait_for(lambda: laptop.json("device", "list")["standing"] == "removed", WAIT_SECONDS, "the removal")
    assert laptop.json("whoami")["entity_id"] != me
    assert laptop.refused("send", room, "after") == "NOT_FOUND"
    assert PLANTED.encode() not in b"".join(
        path.read_bytes() for path in laptop.daemon.home.rglob("*") if path.is_file()
    )
    assert [one["name"] for one in home.json("device", "list")["devices"]] == [""]
    link = json.loads(
        laptop.run("device", "link", name_of(laptop, me.partition(":")[2]), "--name", "x", "--json", fails=True)
    )
    assert link["error"]["code"] == "CONFLICT"


def test_a_device_is_one_after_its_restart_too(three: tuple[Typing, Typing, Typing]) -> None:
    home, laptop, _ = three
    me = added(home, laptop)
    laptop.daemon.run("down")
    laptop.daemon.wait_gone()
    laptop.daemon.up()
    assert laptop.json("whoami")["entity_id"] == me
    room = home.json("room", "create", "Later")["room_id"]
    until_known(laptop, room)
    shown = laptop.run("device", "list")
    assert "this daemon" in shown
    assert me in shown
    for wrong, code in (
        (("device", "add", "x", "--yes"), "INVALID_ARGUMENT"),
        (("device", "remove", "x"), "NOT_FOUND"),
    ):
        assert home.refused(*wrong) == code

"""Daemons with each earlier form of the bus beside this one: both say that rooms do not reach each other, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sublet.daemon.ports.peer_link import BUS_WIRE, BusAddress
from sublet.daemon.rooms.versions import rooms_apart
from support.daemon_rooms import knows
from support.daemons import wait_for
from support.two_versions import Versions, two_versions, whole_log

COMMITS = {2: "7826a439", 3: "0cf057db", 4: "4ff63fc5"}
"""A version with each form between that of ``test_two_versions`` and ours."""
LACKS = {
    2: "it lacks comparing all of a room at once",
    3: "it lacks purging messages and files",
    4: "it lacks rooms whose messages and files only their members read",
}


def test_each_earlier_form_has_a_version_that_is_tried_and_words_of_its_own() -> None:
    assert sorted(COMMITS) == sorted(LACKS) == list(range(2, BUS_WIRE))
    told = {rooms_apart("bob", BusAddress(1, wire, "0.1")).what for wire in (*range(1, BUS_WIRE), BUS_WIRE + 1)}
    assert len(told) == BUS_WIRE
    newer = rooms_apart("bob", BusAddress(1, BUS_WIRE + 1, "9"))
    assert ("it lacks" in newer.what, newer.remedy) == (False, "update Sublet here")


@pytest.fixture(scope="module", params=sorted(COMMITS))
def wire(request: pytest.FixtureRequest) -> int:
    """Return the form of the older one's bus."""
    return int(request.param)


@pytest.fixture(scope="module")
def versions(wire: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versions]:
    """Run both."""
    with two_versions(tmp_path_factory.mktemp("w"), COMMITS[wire]) as found:
        yield found


def test_both_sides_say_it_and_no_message_comes_over(wire: int, versions: Versions) -> None:
    old, new = versions.old, versions.new
    wait_for(lambda: any("runs an older Sublet" in line for line in new.json("status")["remarks"]), 30, "the remark")
    wait_for(lambda: any("runs a newer Sublet" in line for line in old.json("status")["remarks"]), 30, "the other one")
    [peer] = new.json("peers", "list")["peers"]
    assert LACKS[wire] in peer["rooms"]
    assert "update Sublet where old runs" in peer["rooms"]
    member = old.json("whoami")["entity_id"]
    room = new.json("room", "create", "Work")["room_id"]
    told = new.run("room", "invite", room, member)
    assert "Nobody is told yet: the daemon of " in told.stderr + told.stdout
    assert LACKS[wire] in new.json("room", "show", room)["apart"][member]
    sent = new.json("send", room, "hello")["ref_id"]
    assert new.json("receipts", room, sent)["receipt"] == "queued"
    assert not knows(old, room)
    assert whole_log(new).count("runs an older Sublet") == 1


def test_work_is_lent_in_both_directions(versions: Versions) -> None:
    for lender, name in ((versions.old, "new"), (versions.new, "old")):
        work = versions.work / name
        work.mkdir()
        done = lender.run("delegate", str(work), "--to", name, "echo done > file", "--json", check=None)
        assert json.loads(done.stdout)["state"] == "completed", done.stdout + done.stderr
        assert (work / "file").read_text() == "done\n"

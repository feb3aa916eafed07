"""Two daemons of one copied home: noticed, told on both sides in words, and the copy refused until it is its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemon_rooms import WAIT_SECONDS, until_event, until_known
from support.daemons import Daemon, pair, two_daemons, wait_for
from support.typed_commands import Typing


@pytest.fixture
def pairs(tmp_path: Path) -> Iterator[tuple[Typing, Typing]]:
    with two_daemons(tmp_path) as (one, other):
        yield Typing(one), Typing(other)


def copy_of(daemon: Daemon, base: Path, *, from_elsewhere: bool) -> Daemon:
    """Return a copy of a home, as of another machine if so wished."""
    home = base / "copy"
    # What begins with a point is a file that is being written, and may be gone before it is copied.
    left_out = shutil.ignore_patterns("*.sock", "run", "runtime", ".*")
    shutil.copytree(daemon.home, home, symlinks=True, ignore=left_out)
    (home / "state" / "daemon.lock").unlink(missing_ok=True)
    if from_elsewhere:
        file = home / "state" / "home.json"
        said = json.loads(file.read_text())
        said["place"]["machine"] = "another machine"
        file.write_text(json.dumps(said))
    return Daemon(home)


def remarks(who: Typing) -> str:
    """Return what its owner is told."""
    return "\n".join(who.json("status")["remarks"])


def test_a_copy_of_a_home_that_is_still_there_does_not_start(pairs: tuple[Typing, Typing], tmp_path: Path) -> None:
    _, bob = pairs
    copy = copy_of(bob.daemon, tmp_path, from_elsewhere=False)
    failed = copy.json("up", "--detach", "--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0", check=(1,))
    assert failed["error"]["code"] == "HOME_COPIED"
    assert "sublet doctor --own-home" in failed["error"]["hint"]
    [check] = [one for one in copy.json("doctor", check=(1,))["checks"] if one["name"] == "home"]
    assert not check["ok"]
    before = bob.json("status")["node_id"]
    assert copy.json("doctor", "--own-home")["ok"]
    try:
        copy.up()
        assert Typing(copy).json("status")["node_id"] != before
        assert Typing(copy).json("peers", "list")["peers"] == []
    finally:
        copy.down()


def test_a_home_that_was_moved_runs_on_as_it_was(pairs: tuple[Typing, Typing], tmp_path: Path) -> None:
    alice, bob = pairs
    node = bob.json("status")["node_id"]
    bob.daemon.run("down")
    bob.daemon.wait_gone()
    moved = Daemon(bob.daemon.home.rename(tmp_path / "moved"))
    try:
        moved.up()
        assert Typing(moved).json("status")["node_id"] == node
        moved.down()
        # And from another machine, where nobody runs any more.
        elsewhere = copy_of(moved, tmp_path, from_elsewhere=True)
        shutil.rmtree(moved.home)
        try:
            elsewhere.up()
            wait_for(lambda: alice.json("peers", "show", "bob")["agents"], 30, "Bob from elsewhere")
            assert "runs twice" not in remarks(alice)
        finally:
            elsewhere.down()
    finally:
        moved.down()


def test_a_copy_on_another_machine_is_refused_and_told_on_both_sides(
    pairs: tuple[Typing, Typing], tmp_path: Path
) -> None:
    alice, bob = pairs
    his = bob.json("whoami")["entity_id"]
    room = alice.json("room", "create", "Work")["room_id"]
    alice.run("room", "invite", room, his)
    until_known(bob, room)
    first = alice.json("send", room, "before")
    cursor = until_event(bob, 0, "message.new", ref_id=first["ref_id"])
    copy = Typing(copy_of(bob.daemon, tmp_path, from_elsewhere=True))
    try:
        copy.daemon.up()
        wait_for(lambda: "bob runs twice" in remarks(alice), 60, "Alice's being told")
        wait_for(lambda: "is a copy of another one" in remarks(copy), 60, "the copy's being told")
        assert "sublet doctor --own-home" in remarks(copy)
        # The pair goes on as before, and nothing reaches the copy or counts from it.
        sent = alice.json("send", room, "to the one Bob")
        cursor = until_event(bob, cursor, "message.new", ref_id=sent["ref_id"])
        wrong = copy.json("send", room, "from the copy")
        answer = bob.json("send", room, "from Bob")
        until_event(alice, 0, "message.new", ref_id=answer["ref_id"])
        shown = [one.get("body") for one in alice.json("read", room)]
        assert "from the copy" not in shown
        assert "to the one Bob" not in [one.get("body") for one in copy.json("read", room)]
        assert wrong["receipt"] == "queued"
        # Still so where the first one rests.
        bob.daemon.run("down")
        bob.daemon.wait_gone()
        alone = alice.json("send", room, "while Bob is away")
        copy.daemon.run("down")
        copy.daemon.wait_gone()
        copy.daemon.up()
        wait_for(lambda: "is a copy of another one" in remarks(copy), 60, "the copy's being told again")
        shown = [one for one in alice.json("read", room) if one["ref_id"] == alone["ref_id"]]
        assert "from the copy" not in [one.get("body") for one in alice.json("read", room)]
        bob.daemon.up()
        until_event(bob, cursor, "message.new", ref_id=alone["ref_id"])
        copy.daemon.run("down")
        copy.daemon.wait_gone()
        copy.daemon.json("doctor", "--own-home")
        copy.daemon.up()
        pair(copy.daemon, alice.daemon, "alice")
        wait_for(lambda: len(alice.json("peers", "list")["peers"]) == 2, WAIT_SECONDS, "the new peer")
        assert "copy of another one" not in remarks(copy)
    finally:
        copy.daemon.down()

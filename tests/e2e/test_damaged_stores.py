"""Damaged databases of real daemons: told in words, and mended by themselves, by members, or by ``doctor --repair``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.daemon_rooms import WAIT_SECONDS, until_known
from support.daemons import Daemon, two_daemons, wait_for
from support.damage import cut, execute, flip_pages, pages_of
from support.typed_commands import Typing

MESSAGES = 24
DAMAGES = ["flipped pages", "a cut file", "deleted rows", "no database at all"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Typing, Typing]]:
    with two_daemons(tmp_path) as (one, other):
        yield Typing(one), Typing(other)


def state(daemon: Daemon) -> Path:
    """Return where it keeps what it has."""
    return daemon.home / "state"


def talk(alice: Typing, bob: Typing) -> tuple[str, list[str]]:
    """Return a room in which both have said something, and what."""
    his = bob.json("whoami")["entity_id"]
    room = alice.json("room", "create", "Work")["room_id"]
    alice.run("room", "invite", room, his)
    until_known(bob, room)
    for number in range(MESSAGES):
        (alice, bob)[number % 2].run("send", room, f"{number} " + "x" * 500)
    said = wait_for(lambda: whole(alice, room, MESSAGES), WAIT_SECONDS, "the talk")
    wait_for(lambda: bodies(bob, room) == said, WAIT_SECONDS, "the talk on both sides")
    return room, said


def bodies(who: Typing, room: str) -> list[str]:
    """Return what a room shows; nothing while it can't be read."""
    done = who.daemon.run("read", room, "--limit", "100", "--json", check=None)
    if done.returncode:
        assert "Traceback" not in done.stderr
        return []
    return [one["body"] for one in json.loads(done.stdout) if one.get("body")]


def whole(who: Typing, room: str, count: int) -> list[str] | None:
    """Return all that a room shows once it is so much."""
    found = [one for one in bodies(who, room) if "x" in one]
    return found if len(found) == count else None


def hurt(path: Path, how: str) -> None:
    """Damage a database of rooms."""
    if how == "flipped pages":
        flip_pages(path, *pages_of(path, "log")[1:3])
    elif how == "a cut file":
        cut(path, 0.6)
    elif how == "deleted rows":
        execute(path, "DELETE FROM log WHERE seq % 5 = 0")
        execute(path, "DELETE FROM contents WHERE number % 4 = 0")
    else:
        path.write_bytes(b"not a database " * 1_000)


@pytest.mark.parametrize("how", DAMAGES)
def test_rooms_mend_themselves_and_have_all_of_it_again(pair: tuple[Typing, Typing], how: str) -> None:
    alice, bob = pair
    room, said = talk(alice, bob)
    bob.daemon.run("down")
    bob.daemon.wait_gone()
    hurt(state(bob.daemon) / "messaging.db", how)
    found = bob.daemon.json("doctor", check=(1,))["checks"] if how != "deleted rows" else []
    assert all(not one["ok"] and "doctor --repair" in one["fix"] for one in found if one["name"] == "messaging.db")
    bob.daemon.up()
    wait_for(lambda: bodies(bob, room) == said, 60, f"all messages again after {how}, without being accepted again")
    assert bob.json("room", "invitations") == []

    def told() -> str:
        return "\n".join(bob.json("status")["remarks"])

    wait_for(lambda: "members are asked for what is missing" in told() or "made anew" in told(), 60, "being told")
    wait_for(lambda: "not had again yet" not in told(), 60, "nothing lost any more")
    bob.run("send", room, "goes on x")
    wait_for(lambda: bodies(alice, room)[-1:] == ["goes on x"], WAIT_SECONDS, "going on")
    assert "Traceback" not in bob.daemon.log()


def test_rows_that_go_while_it_runs_are_told_and_had_again(pair: tuple[Typing, Typing]) -> None:
    alice, bob = pair
    room, said = talk(alice, bob)
    database = state(bob.daemon) / "messaging.db"
    execute(database, "UPDATE contents SET raw = x'00'")
    bob.daemon.run("down")
    bob.daemon.wait_gone()
    bob.daemon.up()
    wait_for(lambda: bodies(bob, room) == said, 60, "all messages again")


@pytest.mark.parametrize("how", DAMAGES)
def test_doctor_repairs_rooms_where_no_daemon_runs(pair: tuple[Typing, Typing], how: str) -> None:
    alice, bob = pair
    room, said = talk(alice, bob)
    assert bob.daemon.json("doctor", "--repair", check=None)["error"]["code"] == "ALREADY_RUNNING"
    bob.daemon.run("down")
    bob.daemon.wait_gone()
    hurt(state(bob.daemon) / "messaging.db", how)
    done = {one["name"]: one for one in bob.daemon.json("doctor", "--repair")["checks"]}
    assert "made anew" in done["messaging.db"]["detail"] or "asked" in done["messaging.db"]["detail"]
    assert done["sublet.db"]["detail"] == "sound"
    bob.daemon.up()
    wait_for(lambda: bodies(bob, room) == said, 60, f"all messages again after {how}")


@pytest.mark.parametrize("name", ["sublet.db", "a2a.sqlite3"])
@pytest.mark.parametrize("how", ["flipped pages", "a cut file", "no database at all"])
def test_a_database_of_the_daemon_is_told_and_made_anew(pair: tuple[Typing, Typing], name: str, how: str) -> None:
    _, bob = pair
    bob.daemon.run("down")
    bob.daemon.wait_gone()
    path = state(bob.daemon) / name
    table = "peers" if name == "sublet.db" else "a2a_task"
    if how == "flipped pages":
        flip_pages(path, *pages_of(path, table)[:1])
    elif how == "a cut file":
        cut(path, 0.5)
    else:
        path.write_bytes(b"not a database " * 1_000)
    [check] = [one for one in bob.daemon.json("doctor", check=(1,))["checks"] if one["name"] == name]
    assert not check["ok"]
    assert "doctor --repair" in check["fix"]
    up = bob.daemon.run("up", "--detach", "--a2a", "127.0.0.1:0", "--sftp", "127.0.0.1:0", "--json", check=None)
    assert "Traceback" not in up.stdout + up.stderr + bob.daemon.log()
    if up.returncode:
        assert "doctor --repair" in up.stdout + up.stderr
    else:

        def told() -> list[str]:
            remarks: list[str] = bob.json("status")["remarks"]
            return [line for line in remarks if name in line and "doctor --repair" in line]

        wait_for(told, 30, "being told by status")
        bob.daemon.run("down", check=None)
        bob.daemon.info = {}
        wait_for(lambda: not (state(bob.daemon) / "daemon.lock").exists(), 30, "its end")
    done: dict[str, Any] = {one["name"]: one for one in bob.daemon.json("doctor", "--repair")["checks"]}
    assert "the damaged file is" in done[name]["detail"]
    bob.daemon.up()
    assert not [line for line in bob.json("status")["remarks"] if name in line]

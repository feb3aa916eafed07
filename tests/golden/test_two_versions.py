"""The first frozen version and this one, each as a real daemon: they go on lending to each other, and say what is not.

The older daemon runs out of this repository's history. What an older version does can't be changed any more, so all of
it that matters here is kept by what this version sends and takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.daemon_rooms import knows
from support.daemons import Daemon, wait_for
from support.old_version import FIRST
from support.two_versions import Versions, two_versions, whole_log

APART = "runs an older Sublet (0.1.0), whose rooms do not reach this one's"


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Versions]:
    """Run both."""
    with two_versions(tmp_path_factory.mktemp("v"), FIRST) as found:
        yield found


@pytest.fixture(params=["old to new", "new to old"])
def ways(request: pytest.FixtureRequest, versions: Versions) -> tuple[Daemon, str, Path]:
    """Return who lends, to whom by name, and a directory to lend."""
    lender, name = (versions.old, "new") if request.param == "old to new" else (versions.new, "old")
    work = versions.work / lender.home.name / request.node.originalname
    work.mkdir(parents=True)
    (work / "notes.txt").write_text("one\n")
    return lender, name, work


def lend(ways: tuple[Daemon, str, Path], prompt: str, *options: str) -> dict[str, Any]:
    """Delegate, and return how it ended."""
    lender, name, work = ways
    done = lender.run("delegate", str(work), "--to", name, prompt, "--json", *options, check=None)
    return dict(json.loads(done.stdout))


def test_a_live_lease(ways: tuple[Daemon, str, Path]) -> None:
    ended = lend(ways, "echo two >> notes.txt; mkdir made; echo new > made/file")
    assert ended["state"] == "completed", ended
    assert (ways[2] / "notes.txt").read_text() == "one\ntwo\n"
    assert (ended["audit"]["added"], ended["audit"]["changed"]) == (["made/file"], ["notes.txt"])


def test_a_staged_lease_and_its_undo(ways: tuple[Daemon, str, Path]) -> None:
    lender, _, work = ways
    ended = lend(ways, "echo staged > staged.txt", "--staged")
    assert ended["state"] == "completed", ended
    assert not (work / "staged.txt").exists()
    lender.run("apply", ended["delegation_id"])
    assert (work / "staged.txt").read_text() == "staged\n"
    lender.run("undo", ended["delegation_id"])
    assert not (work / "staged.txt").exists()


def test_a_lease_by_archive(ways: tuple[Daemon, str, Path]) -> None:
    ended = lend(ways, "echo by-archive > archived.txt", "--transport", "archive")
    assert ended["state"] == "completed", ended
    assert (ways[2] / "archived.txt").read_text() == "by-archive\n"


def test_a_follow_up_and_a_failure(ways: tuple[Daemon, str, Path]) -> None:
    lender, name, work = ways
    begun = lender.json("delegate", str(work), "--to", name, "while [ ! -e go ]; do sleep 0.1; done", "--background")
    one = begun["delegation_id"]
    wait_for(lambda: state(lender, one) == "running", 30, "the work")
    lender.run("say", one, "echo further > further; exit 3")
    (work / "go").touch()
    wait_for(lambda: state(lender, one) not in ("running", "started"), 60, "the end")
    assert state(lender, one) == "error"
    assert (work / "further").read_text() == "further\n"


def test_cancelling_cuts_access(ways: tuple[Daemon, str, Path]) -> None:
    lender, name, work = ways
    one = lender.json("delegate", str(work), "--to", name, "sleep 60", "--background")["delegation_id"]
    wait_for(lambda: state(lender, one) == "running", 30, "the work")
    lender.run("cancel", one)
    wait_for(lambda: state(lender, one) == "cancelled", 30, "the end")


def test_an_agent_that_is_not_there_is_refused_in_words(ways: tuple[Daemon, str, Path]) -> None:
    lender, name, work = ways
    done = lender.run("delegate", str(work), "--to", f"{name}/nobody", "true", check=None)
    assert done.returncode != 0
    assert "nobody" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def state(lender: Daemon, delegation_id: str) -> str:
    """Return the state of a delegation."""
    [found] = [one for one in lender.json("ls", "--all")["delegations"] if one["delegation_id"] == delegation_id]
    return str(found["state"])


def test_the_newer_side_says_once_what_the_older_one_lacks(versions: Versions) -> None:
    new = versions.new
    wait_for(lambda: any(APART in line for line in new.json("status")["remarks"]), 30, "the remark")
    for _ in range(2):  # each has it look at its peers again
        new.run("reload")
    [peer] = new.json("peers", "list")["peers"]
    assert APART in peer["rooms"]
    assert "update Sublet where old runs" in peer["rooms"]
    assert "rooms    none: old runs an older Sublet" in new.run("peers", "show", "old").stdout
    assert "delegations go on in both directions" in new.run("doctor", check=None).stdout
    [check] = [one for one in new.json("doctor", check=None)["checks"] if one["name"] == "rooms with old"]
    assert check["ok"], "nothing is wrong with this machine"
    assert whole_log(new).count(APART) == 1


def test_a_room_says_which_member_hears_nothing(versions: Versions) -> None:
    new, member = versions.new, versions.old.json("whoami")["entity_id"]
    wait_for(lambda: new.json("status")["remarks"], 30, "the remark")
    room = new.json("room", "create", "Work")["room_id"]
    told = new.run("room", "invite", room, member)
    assert "Nobody is told yet: the daemon of " in told.stderr + told.stdout
    assert APART in new.json("room", "show", room)["apart"][member]
    assert f"{member} hears nothing yet" in new.run("room", "show", room).stdout
    sent = new.json("send", room, "hello")["ref_id"]
    assert new.json("receipts", room, sent)["receipt"] == "queued"
    assert not knows(versions.old, room)


def test_the_older_side_is_not_lured_into_calling_a_bus_that_it_cannot_join(versions: Versions) -> None:
    old, new = versions.old, versions.new
    assert old.json("whoami"), "its rooms run"
    port = int(new.json("status")["bus"].rpartition(":")[2])
    called = [
        one.raddr.port
        for one in psutil.Process(old.pid).net_connections("tcp")
        if one.status == psutil.CONN_ESTABLISHED
    ]
    assert port not in called
    doors = old.home / "state" / "bus_doors.json"
    assert not doors.exists() or json.loads(doors.read_text()) == {}
    for daemon in (old, new):
        problems = [line for line in whole_log(daemon).splitlines() if '"level": "error"' in line]
        # The older version listens on the port that all daemons have by default, and tries again while another has it.
        assert [line for line in problems if "Address already in use" not in line] == []
    assert len(whole_log(new)) < 64 << 10

"""A lease between two machines of which perhaps only one can call the other (DESIGN 4.6), in network namespaces."""

from __future__ import annotations

import errno
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sublet.daemon.api.operation import Nothing
from sublet.daemon.api.peers import LIST_PEERS
from support.daemons import SHELL_AGENT, Daemon, pair, wait_for
from support.leases import ask, begin, conditions, delegate, finish, marker, mount_of, processes_with, view, wait_state
from support.namespaces import Machine, needs_root, two_machines

pytestmark = needs_root

A2A_PORT, SFTP_PORT = 8642, 8622
LAPTOP_SFTP_PORT = 8722
STATED_SECONDS = 15
"""What DESIGN 12 promises from the loss of a link to the error in the program."""


@dataclass(frozen=True)
class Scene:
    """A server that works, and on the other machine a daemon in the open and a laptop that nobody can call."""

    open: Daemon
    laptop: Daemon
    server: Daemon
    lending_machine: Machine
    serving_machine: Machine


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    base = tmp_path_factory.mktemp("nat")
    with two_machines() as (left, right):
        lender, laptop = Daemon(base / "open", prefix=left.prefix), Daemon(base / "laptop", prefix=left.prefix)
        server = Daemon(base / "server", prefix=right.prefix)
        try:
            lender.up(a2a=f"{left.address}:{A2A_PORT}", sftp=f"{left.address}:{SFTP_PORT}", agent=SHELL_AGENT)
            laptop.up(sftp=f"127.0.0.1:{LAPTOP_SFTP_PORT}")
            server.up(a2a=f"{right.address}:{A2A_PORT}", sftp=f"{right.address}:{SFTP_PORT}", agent=SHELL_AGENT)
            pair(lender, server, "server")
            pair(laptop, server, "server")
            yield Scene(lender, laptop, server, left, right)
        finally:
            for daemon in (lender, laptop, server):
                daemon.down()
            assert server.mounts == lender.mounts == []


def worked(daemon: Daemon, directory: Path) -> dict[str, Any]:
    """Have the server change a directory and return the end, after a look at what has come home."""
    (directory / "input").write_bytes(bytes(range(256)) * 4096)
    ended = delegate(daemon, directory, "sha256sum < input | cut -c1-8 > sum; cat input input > twice", peer="server")
    assert ended["state"] == "completed", ended["error"]
    assert (ended["audit"]["added"], ended["audit"]["changed"]) == (["sum", "twice"], [])
    assert (directory / "twice").read_bytes() == (directory / "input").read_bytes() * 2
    assert (directory / "sum").read_text() == "fbbab289\n"
    assert ended["usage"]["bytes_read"] >= 2 * 1024 * 1024
    return ended


def test_a_lender_that_listens_on_loopback_only_dials_the_server(scene: Scene, tmp_path: Path) -> None:
    listening = scene.lending_machine.listening()
    assert f"127.0.0.1:{LAPTOP_SFTP_PORT}" in listening

    ended = worked(scene.laptop, tmp_path)

    assert ended["usage"]["data_path"] == "reverse"
    assert scene.lending_machine.listening() == listening, "nothing was opened on the way"


def test_where_both_ways_are_open_the_server_dials_the_lender(scene: Scene, tmp_path: Path) -> None:
    ended = worked(scene.open, tmp_path)

    assert ended["usage"]["data_path"] == "direct"


def test_a_lender_whose_port_is_out_of_reach_turns_to_the_reverse_way(scene: Scene, tmp_path: Path) -> None:
    (tmp_path / "shielded").mkdir()
    (tmp_path / "open").mkdir()

    with scene.lending_machine.shielded(SFTP_PORT):
        assert worked(scene.open, tmp_path / "shielded")["usage"]["data_path"] == "reverse"
    assert worked(scene.open, tmp_path / "open")["usage"]["data_path"] == "direct"


def test_a_lender_that_cannot_be_called_at_all_needs_only_to_call(scene: Scene, tmp_path: Path) -> None:
    with scene.lending_machine.shielded(SFTP_PORT), scene.lending_machine.shielded(A2A_PORT):
        assert worked(scene.open, tmp_path)["usage"]["data_path"] == "reverse"


def test_where_neither_way_is_open_the_lease_ends_in_an_error_that_says_so(scene: Scene, tmp_path: Path) -> None:
    lender, server = scene.lending_machine, scene.serving_machine
    with lender.shielded(SFTP_PORT), lender.without_route(server.address, SFTP_PORT):
        ended = delegate(scene.open, tmp_path, "true", peer="server")

    assert (ended["state"], ended["error"]["code"]) == ("error", "MOUNT_FAILED")
    assert "dialling" in ended["error"]["message"]
    assert "reachable from here" in ended["error"]["hint"]
    wait_for(lambda: scene.server.mounts == [], 20, "the end of the mount")


def test_a_lease_on_the_reverse_way_is_cut_like_any_other(scene: Scene, tmp_path: Path) -> None:
    sign = marker()
    delegation = begin(
        scene.laptop, tmp_path, f"while :; do date >> log; sleep 0.1; done & sleep {sign}", peer="server"
    )
    wait_for(lambda: (tmp_path / "log").exists(), 30, "the work")

    scene.laptop.json("cancel", delegation, check=None)

    ended = finish(scene.laptop, delegation)
    assert str(ended.state) == "cancelled"
    size = (tmp_path / "log").stat().st_size
    wait_for(lambda: not processes_with(sign), 20, "the end of the work")
    wait_for(lambda: not mount_of(scene.server, delegation).exists(), 20, "the end of the mount")
    assert (tmp_path / "log").stat().st_size == size, "nothing was written once the lease was cut"
    assert view(scene.laptop, delegation).usage.data_path == "reverse"


def test_a_lease_on_the_reverse_way_runs_out(scene: Scene, tmp_path: Path) -> None:
    sign = marker()
    delegation = begin(scene.laptop, tmp_path, f"echo begun > log; sleep {sign}", "--ttl", "4", peer="server")

    wait_state(scene.laptop, delegation, "expired")

    assert (tmp_path / "log").read_text() == "begun\n"
    wait_for(lambda: not processes_with(sign), 20, "the end of the work")
    wait_for(lambda: not mount_of(scene.server, delegation).exists(), 20, "the end of the mount")


def test_a_laptop_that_cannot_be_called_is_known_as_such(scene: Scene, tmp_path: Path) -> None:
    laptop = next(
        peer
        for peer in ask(scene.server, lambda client: client.call(LIST_PEERS, Nothing()))
        if peer.fingerprint == scene.laptop.info["fingerprint"]
    )
    assert laptop.a2a_url is None

    ended = delegate(scene.server, tmp_path, "true", peer=laptop.name)

    assert (ended["state"], ended["error"]["code"]) == ("error", "PEER_UNREACHABLE")
    assert list(tmp_path.iterdir()) == []


def test_both_lend_at_the_same_time_to_each_other(scene: Scene, tmp_path: Path) -> None:
    """Two daemons are delegator and executor of one another, over one SFTP port each."""
    there, back = tmp_path / "there", tmp_path / "back"
    for directory in (there, back):
        directory.mkdir()
    name = next(
        peer.name
        for peer in ask(scene.server, lambda client: client.call(LIST_PEERS, Nothing()))
        if peer.fingerprint == scene.open.info["fingerprint"]
    )

    first = begin(scene.open, there, "sleep 2; echo done > mark", peer="server")
    second = begin(scene.server, back, "sleep 2; echo done > mark", peer=name)

    for daemon, delegation, directory in ((scene.open, first, there), (scene.server, second, back)):
        ended = finish(daemon, delegation)
        assert (str(ended.state), ended.usage.data_path) == ("completed", "direct")
        assert (directory / "mark").read_text() == "done\n"


SEES_AN_ERROR_AND_GOES_ON = """
touch started; n=0
until stat absent-$n 2>&1 | grep -q Input/output; do n=$((n+1)); sleep 0.2; done
until echo back > result; do sleep 0.2; done 2>/dev/null
"""


def test_mounts_of_both_ways_come_back_after_a_partition(scene: Scene, tmp_path: Path) -> None:
    ways = {"direct": scene.open, "reverse": scene.laptop}
    begun = {}
    for name, lender in ways.items():
        (tmp_path / name).mkdir()
        begun[name] = begin(lender, tmp_path / name, SEES_AN_ERROR_AND_GOES_ON, peer="server")
    for name in ways:
        wait_for((tmp_path / name / "started").exists, 30, "the work")

    with scene.lending_machine.unplugged():
        unplugged = time.monotonic()
        looks = [
            subprocess.Popen(["stat", str(mount_of(scene.server, each) / "workspace" / "no")], stderr=subprocess.PIPE)
            for each in begun.values()
        ]
        assert scene.server.json("status")["assignments_active"] == 2, "it answers while calls in its mounts hang"
        for look in looks:
            assert os.strerror(errno.EIO).encode() in look.communicate(timeout=STATED_SECONDS)[1]
        assert time.monotonic() - unplugged <= STATED_SECONDS

    for name, lender in ways.items():
        end = finish(lender, begun[name])
        assert str(end.state) == "completed", (name, end.error)
        assert (tmp_path / name / "result").read_text() == "back\n"
        # Whichever way is open first will do where both were.
        assert end.usage.data_path in (name, "reverse")
        assert end.result is not None
        assert end.result.link_losses == 1
        assert end.audit is not None
        assert sorted(end.audit.added) == ["result", "started"]
        assert "degraded" in conditions(lender, begun[name])
    assert scene.server.mounts == []

"""Stops and crashes of daemons with work under way: nothing is left, and both sides tell the truth (DESIGN 3, 4.10)."""

from __future__ import annotations

import json
import os
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from sublet.daemon.api.daemon import SHOW_STATUS
from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegations import CANCEL_DELEGATION
from sublet.daemon.api.operation import Nothing
from support.daemons import SHELL_AGENT, Daemon, pair, two_daemons, wait_for
from support.leases import ask, begin, delegate, finish, marker, processes_with, restart, view, wait_state
from support.leftovers import held, left_behind, rows

STOP_SECONDS = 5.0
"""What DESIGN 3 promises from SIGTERM or SIGINT to the end of the process."""
LOST_SECONDS = 30
"""Time to notice that the other side is gone, with much to spare: a dead link is noticed in 15 s."""

Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A lender and a worker, paired; every test leaves them running."""
    with two_daemons(tmp_path_factory.mktemp("process")) as both:
        yield both


def stop(daemon: Daemon, number: signal.Signals) -> None:
    """Send a signal and see that the daemon ends in the time that is promised."""
    assert daemon.pid is not None
    began = time.monotonic()
    os.kill(daemon.pid, number)
    daemon.wait_gone(60)
    assert time.monotonic() - began < STOP_SECONDS


STUBBORN = "trap '' TERM INT HUP; echo begun > begun; (trap '' TERM; while :; do sleep {sign}; done) & sleep {sign}"


@pytest.mark.parametrize(("who", "number"), [("lender", signal.SIGTERM), ("worker", signal.SIGINT)])
def test_a_stop_with_a_lease_under_way_leaves_nothing(
    daemons: Pair, tmp_path: Path, who: str, number: signal.Signals
) -> None:
    lender, worker = daemons
    sign = marker()
    delegation = begin(lender, tmp_path, STUBBORN.format(sign=sign))
    wait_for(lambda: (tmp_path / "begun").exists(), 30, "the work")
    stopped, other = (lender, worker) if who == "lender" else (worker, lender)
    try:
        stop(stopped, number)

        assert left_behind(stopped) == []
        wait_for(lambda: not processes_with(sign), LOST_SECONDS, "the end of the work")
        wait_for(lambda: worker.mounts == [], LOST_SECONDS, "the end of the mount")
        wait_for(lambda: held(other) == [], LOST_SECONDS, "the release of all that was held")
    finally:
        restart(stopped, SHELL_AGENT if stopped is worker else None)

    ended = finish(lender, delegation)
    assert ended.error is not None
    assert (str(ended.state), ended.error.code) == ("cancelled", "CANCELLED")
    assert "stopped" in ended.error.message
    assert ended.audit is not None
    assert ended.audit.added == ["begun"]
    wait_for(
        lambda: ask(worker, lambda client: client.call(SHOW_STATUS, Nothing())).assignments_active == 0,
        20,
        "a free slot",
    )
    assert delegate(lender, tmp_path, "rm begun")["state"] == "completed"


def test_a_stop_ends_plain_messages_too(daemons: Pair) -> None:
    worker = daemons[1]
    sign = marker()
    token = worker.json("token", "create", "visitor")["token"]
    worker_url = worker.info["a2a_url"]
    words = f"echo begun; {STUBBORN.format(sign=sign)}"
    part = {"kind": "text", "text": words}
    message = {"kind": "message", "messageId": "m1", "role": "user", "parts": [part]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/stream", "params": {"message": message}}
    headers = {"Authorization": f"Bearer {token}"}
    try:
        with (
            httpx.Client(base_url=worker_url, trust_env=False, timeout=30) as client,
            client.stream("POST", "/", json=body, headers=headers) as stream,
        ):
            lines = stream.iter_lines()
            wait_for(lambda: "begun" in next(lines), 20, "the first words")
            stop(worker, signal.SIGTERM)
        assert left_behind(worker) == []
        wait_for(lambda: not processes_with(sign), 10, "the end of the work")
    finally:
        restart(worker)
        worker.run("token", "revoke", "visitor")


# Crashing


def test_a_worker_that_is_killed_comes_back_clean_and_says_the_truth(daemons: Pair, tmp_path: Path) -> None:
    lender, worker = daemons
    sign = marker()
    delegation = begin(lender, tmp_path, f"echo > begun; sleep {sign}")
    wait_for(lambda: (tmp_path / "begun").exists(), 30, "the work")

    worker.kill()
    try:
        wait_for(lambda: not processes_with(sign), 20, "the end of the work, with its daemon")
        assert json.loads(worker.run("status", "--json", check=(4,)).stdout)["error"]["code"] == "DAEMON_UNAVAILABLE"
        checks = {check["name"]: check for check in worker.json("doctor", check=None)["checks"]}
        assert checks["mounts"]["ok"] == (worker.mounts == [])
    finally:
        restart(worker)

    assert worker.mounts == []
    assert held(worker) == []
    assert rows(worker, "SELECT state FROM assignments WHERE state NOT IN ('completed', 'error')") == []
    ended = finish(lender, delegation)
    assert ended.error is not None
    assert (str(ended.state), ended.error.code) == ("error", "TASK_FAILED")
    assert ended.audit is not None
    assert ended.audit.added == ["begun"]
    wait_for(lambda: held(lender) == [], 20, "the release of all that was held")
    assert delegate(lender, tmp_path, "rm begun")["state"] == "completed"


def test_a_lender_that_is_killed_comes_back_and_can_still_end_the_work(daemons: Pair, tmp_path: Path) -> None:
    lender, worker = daemons
    sign = marker()
    delegation = begin(lender, tmp_path, f"echo > begun; sleep {sign}")
    wait_for(lambda: (tmp_path / "begun").exists(), 30, "the work")

    lender.kill()
    restart(lender, None)
    ask(lender, lambda client: client.call(CANCEL_DELEGATION, OneDelegation(delegation_id=delegation)))

    wait_for(lambda: not processes_with(sign), LOST_SECONDS, "the end of the work")
    wait_for(lambda: worker.mounts == [], LOST_SECONDS, "the end of the mount")
    ended = finish(lender, delegation)
    assert ended.error is not None
    assert (str(ended.state), ended.error.code) == ("cancelled", "CANCELLED")
    wait_for(lambda: held(lender) == [], 20, "the release of all that was held")
    assert ended.audit is not None
    assert ended.audit.added == ["begun"]
    wait_for(lambda: held(worker) == [], LOST_SECONDS, "the release of all that was held")
    wait_for(
        lambda: ask(worker, lambda client: client.call(SHOW_STATUS, Nothing())).assignments_active == 0,
        20,
        "a free slot",
    )
    assert delegate(lender, tmp_path, "rm begun")["state"] == "completed"


def test_both_killed_at_once_come_back_clean(daemons: Pair, tmp_path: Path) -> None:
    lender, worker = daemons
    sign = marker()
    delegations = [begin(lender, tmp_path, f"echo > begun; sleep {sign}"), begin(lender, tmp_path, "true")]
    wait_for(lambda: (tmp_path / "begun").exists(), 30, "the work")
    assert str(view(lender, delegations[1]).state) == "created", "it waits for the directory"

    lender.kill()
    worker.kill()
    restart(worker)
    restart(lender, None)

    ended = [finish(lender, each) for each in delegations]
    # The work died with its daemon, which says so; what had not begun waits for it, and then goes on.
    assert [str(each.state) for each in ended] == ["error", "completed"]
    assert ended[0].error is not None
    assert "restarted" in ended[0].error.message
    wait_for(lambda: held(lender) == held(worker) == worker.mounts == [], 20, "the release of all that was held")
    assert processes_with(sign) == []
    again = begin(lender, tmp_path, "rm begun")
    wait_state(lender, again, "completed")
    assert list(tmp_path.iterdir()) == []


# Homes


def test_a_home_with_a_long_and_odd_name_works_like_any_other(daemons: Pair, tmp_path: Path) -> None:
    lender = daemons[0]
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    parent = tmp_path / ("long " * 20).strip() / ("ä" * 60)
    parent.mkdir(parents=True)
    odd = Daemon(parent / 'it\'s "home"')
    try:
        odd.up(agent=SHELL_AGENT)
        runtime = Path(odd.info["control_socket"]).parent
        assert len(str(runtime / "control.sock")) < 108
        assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
        pair(lender, odd, "odd")
        ended = delegate(lender, workspace, "echo hello > mark", peer="odd")
        assert ended["state"] == "completed", ended["error"]
        lender.run("peers", "remove", "odd")
        assert odd.json("doctor")["daemon"] is True
        assert odd.json("down")["stopped"] is True
    finally:
        odd.down()
    assert (workspace / "mark").read_text() == "hello\n"
    assert not runtime.exists()
    assert odd.mounts == []


READER = "echo begun > begun; while :; do cat begun > /dev/null; ls -l > again; done"


def test_a_stop_ends_in_time_although_several_stages_of_it_hang(tmp_path: Path) -> None:
    """It works in a mount whose lender does not answer, lends to a worker that does not answer, and has a caller."""
    with two_daemons(tmp_path / "d") as (lender, middle):
        worker = Daemon(tmp_path / "d" / "c")
        worker.up(agent=SHELL_AGENT)
        pair(middle, worker, "carol")
        silent = (lender, worker)
        try:
            for daemon, peer in ((lender, "bob"), (middle, "carol")):
                lent = tmp_path / peer
                lent.mkdir()
                begin(daemon, lent, READER, peer=peer)
                wait_for(lambda lent=lent: (lent / "begun").exists(), 60, "the work")
            for daemon in silent:
                daemon.kill(signal.SIGSTOP)
            with httpx.stream("GET", f"{middle.info['a2a_url']}/.well-known/agent-card.json", trust_env=False):
                stop(middle, signal.SIGTERM)
        finally:
            for daemon in silent:
                daemon.kill(signal.SIGCONT)
        restart(middle, SHELL_AGENT)
        wait_for(lambda: middle.mounts == [], LOST_SECONDS, "the end of the mount")
        worker.down()

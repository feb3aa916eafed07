"""Case C41, a cancel in every state, and that after it nothing reaches the lender any more."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from subprocess import PIPE

import pytest

from sublet.daemon.api.delegation_fields import OneDelegation
from sublet.daemon.api.delegation_views import DelegationView
from sublet.daemon.api.delegations import CANCEL_DELEGATION
from sublet.daemon.control.client import ControlClient
from support.daemons import Daemon, wait_for
from support.held_proxy import HeldProxy, held_proxy
from support.leases import (
    ask,
    assignment,
    begin,
    delegate,
    finish,
    marker,
    mount_of,
    processes_with,
    states,
    tree,
    view,
    wait_state,
)
from support.ports import free_port
from support.watched_leases import (
    START,
    TERMINAL,
    Pair,
    assert_gone,
    daemons_behind,
    ends,
    running,
)

HOLD = """
import os, sys
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
os.write(file, b"before")
os.fsync(file)
print("open", flush=True)
sys.stdin.readline()
os.write(file, b"after")
os.fsync(file)
"""


@pytest.fixture(scope="module")
def proxy() -> Iterator[HeldProxy]:
    """Stands before the executor, so that a test can act between two messages."""
    with held_proxy(free_port()) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory, proxy: HeldProxy) -> Iterator[Pair]:
    with daemons_behind(proxy, tmp_path_factory.mktemp("pair")) as both:
        yield both


# C41: cancelling in every state


def cancel_twice(delegator: Daemon, id_: str) -> None:
    """Cancel, and once more, which is no error and changes nothing."""
    first = delegator.json("cancel", id_)
    assert first["state"] == "cancelled"
    assert first["error"]["code"] == "CANCELLED"
    assert finish(delegator, id_).state == "cancelled"
    second = delegator.json("cancel", id_)
    assert (second["state"], second["error"]) == ("cancelled", first["error"])
    assert ends(delegator, id_) == ["cancelled"]


def slots_are_free(executor: Daemon) -> None:
    """Wait until no slot is held: it is given back once all that the work held is, long before a promise expires."""
    wait_for(lambda: executor.json("status")["assignments_active"] == 0, 20, "a free slot")


def test_c41_cancel_while_queued(daemons: Pair, tmp_path: Path) -> None:
    delegator, _ = daemons
    mark = marker()
    first = running(daemons, tmp_path, mark)
    second = begin(delegator, tmp_path, "touch second")
    wait_for(lambda: view(delegator, second).condition, 20, "the queue")

    cancel_twice(delegator, second)
    cancel_twice(delegator, first)

    assert_gone(daemons, mark, first, second)
    assert delegate(delegator, tmp_path, "ls")["result"]["final_summary"] == "started"


def test_c41_cancel_while_invited(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    executor.kill(signal.SIGSTOP)
    try:
        id_ = begin(delegator, tmp_path, "touch started")
        wait_state(delegator, id_, "invited")
        cancel_twice(delegator, id_)
    finally:
        executor.kill(signal.SIGCONT)

    slots_are_free(executor)
    assert list(tmp_path.iterdir()) == []


def test_c41_cancel_while_started(daemons: Pair, proxy: HeldProxy, tmp_path: Path) -> None:
    """Accepted is left for started without a pause, so START that is on its way is as early as a cancel can come."""
    delegator, executor = daemons
    arrived, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        arrived.set()
        go_on.wait(30)

    proxy.before(START, hold)
    id_ = begin(delegator, tmp_path, "touch started")
    assert arrived.wait(30)
    assert str(view(delegator, id_).state) == "started"
    try:
        cancel_twice(delegator, id_)
    finally:
        go_on.set()

    wait_for(lambda: assignment(executor, id_)["state"] == "error", 30, "the executor's end")
    assert_gone(daemons, "no such worker", id_)
    assert list(tmp_path.iterdir()) == []


def test_c41_cancel_while_running_and_after_the_end(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    mark = marker()
    id_ = running(daemons, tmp_path, mark)

    cancel_twice(delegator, id_)

    assert_gone(daemons, mark, id_)
    wait_for(lambda: assignment(executor, id_)["state"] == "error", 20, "the executor's end")
    assert assignment(executor, id_)["error"]["code"] == "CANCELLED"
    slots_are_free(executor)
    done = delegate(delegator, tmp_path, "echo done")
    after = delegator.json("cancel", done["delegation_id"])
    assert (after["state"], after["error"]) == ("completed", None)
    assert states(delegator, done["delegation_id"])[-1] == "completed"


async def cancelled(delegation_id: str, control: ControlClient) -> DelegationView:
    """Cancel, and return what is answered."""
    return await control.call(CANCEL_DELEGATION, OneDelegation(delegation_id=delegation_id))


def test_c41_cancel_racing_the_end(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    seen = set()
    moments = random.Random(41)
    for _ in range(6):
        id_ = begin(delegator, tmp_path, "sleep 0.3; echo done > result")
        # On a busy machine it may be over before anybody has seen it run.
        wait_for(lambda id_=id_: "running" in states(delegator, id_), 30, "the work")
        time.sleep(moments.uniform(0.1, 0.5))
        told = ask(delegator, partial(cancelled, id_))
        end = finish(delegator, id_)

        assert len(ends(delegator, id_)) == 1
        assert str(end.state) in {"completed", "cancelled"}
        if str(told.state) in TERMINAL:
            assert told.state == end.state
        assert (end.result is None) == (str(end.state) == "cancelled")
        seen.add(str(end.state))
    assert_gone(daemons, "no such worker", id_)
    slots_are_free(executor)


# Revocation


def test_after_a_cancel_nothing_lands_any_more(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    mark = marker()
    script = f"""
        touch started
        i=0; while :; do i=$((i+1)); echo $i > "file-$i"; done &
        while :; do date >> log; done & sleep {mark}
    """
    id_ = begin(delegator, tmp_path, script)
    wait_for((tmp_path / "file-3").exists, 40, "the work")
    mount = mount_of(executor, id_) / "workspace"
    workers = processes_with(mark)
    # In a process of its own, since whoever holds a file of a frozen mount may wait for it.
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(mount / "held-open")], stdin=PIPE, stdout=PIPE, cwd="/"
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"open\n"
        executor.kill(signal.SIGSTOP)  # so that it can neither hear of the cancel nor stop the writers
        try:
            assert delegator.json("cancel", id_)["state"] == "cancelled"
            at_the_cancel = tree(tmp_path)
        finally:
            executor.kill(signal.SIGCONT)
        holder.communicate(b"write\n", timeout=30)
    with pytest.raises(OSError, match=r".+"):
        (mount / "late").write_text("late")
    assert_gone(daemons, mark, id_)

    assert holder.returncode != 0
    assert workers
    assert tree(tmp_path) == at_the_cancel
    assert finish(delegator, id_).state == "cancelled"

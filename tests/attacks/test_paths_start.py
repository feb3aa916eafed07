"""Whatever lies in scratch, staging and stores when the daemon starts, it starts, and says what it set aside."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from attacks.kit.state import STORES, litter
from support.daemons import SHELL_AGENT, Daemon, two_daemons, wait_for
from support.deep_tree import nest
from support.leases import begin, delegate, view

Pair = tuple[Daemon, Daemon]


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Pair]:
    with two_daemons(tmp_path / "pair") as both:
        yield both
    for daemon in both:  # pytest itself can't remove what is too deep
        subprocess.run(["rm", "-rf", str(daemon.home)], check=True)


def started_again(daemon: Daemon, agent: dict[str, object] | None = None) -> list[str]:
    """Start a daemon that was killed, and return what its owner should know."""
    daemon.up(agent=agent)
    return [str(line) for line in daemon.json("status")["remarks"]]


def test_litter_in_every_store_keeps_nobody_from_starting(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    lent = tmp_path / "lent"
    lent.mkdir()
    staged = delegate(delegator, lent, "echo new > file", "--staged")
    assert staged["state"] == "completed"
    for daemon, agent in ((delegator, None), (executor, dict[str, object](SHELL_AGENT))):
        daemon.kill()
        for store in STORES:
            litter(daemon.home / "state" / store)
        remarks = started_again(daemon, agent)
        assert any("changes/" in line for line in remarks), remarks
        # What is set aside is gone from its place.
        assert not (daemon.home / "state" / "changes" / "no key").exists()
    assert delegate(delegator, lent, "echo more > more")["state"] == "completed"
    delegator.run("apply", str(staged["delegation_id"]))
    assert (lent / "file").read_text() == "new\n"


@pytest.mark.parametrize("kind", ["file", "fifo", "dangling link", "deep directory"])
def test_something_else_in_place_of_a_store(daemons: Pair, kind: str, tmp_path: Path) -> None:
    delegator, executor = daemons
    executor.kill()
    delegator.kill()
    for daemon in daemons:
        for store in (*STORES, "mounts"):
            place = daemon.home / "state" / store
            subprocess.run(["rm", "-rf", str(place)], check=True)
            match kind:
                case "file":
                    place.write_bytes(b"not a directory")
                case "fifo":
                    os.mkfifo(place)
                case "dangling link":
                    place.symlink_to(tmp_path / "nowhere")
                case _:
                    nest(place, 1_500)
    started_again(delegator)
    started_again(executor, dict[str, object](SHELL_AGENT))
    lent = tmp_path / "lent"
    lent.mkdir()
    assert delegate(delegator, lent, "echo more > more", "--staged")["state"] == "completed"
    assert not (tmp_path / "nowhere").exists()


def test_rows_that_are_no_records(daemons: Pair, tmp_path: Path) -> None:
    delegator, executor = daemons
    lent = tmp_path / "lent"
    lent.mkdir()
    ids = [begin(delegator, lent, "sleep 60", "--ro") for _ in range(3)]
    wait_for(lambda: all(view(delegator, id_).state == "running" for id_ in ids), 40, "three leases")
    rows = ["no json", '{"id": 1}', b"\xff\xfe"]
    for daemon in daemons:
        daemon.kill()
        table = "delegations" if daemon is delegator else "assignments"
        with sqlite3.connect(daemon.home / "state" / "sublet.db") as database:
            for id_, row in zip(ids, rows, strict=True):
                database.execute(f"UPDATE {table} SET record = CAST(? AS TEXT) WHERE id = ?", (row, id_))
            database.execute("UPDATE resources SET detail = 'no json'")
    remarks = started_again(delegator)
    assert sum("delegations/dlg_" in line for line in remarks) == 3, remarks
    remarks = started_again(executor, dict[str, object](SHELL_AGENT))
    assert sum("assignments/dlg_" in line for line in remarks) == 3, remarks
    assert delegate(delegator, lent, "echo more > more")["state"] == "completed"

"""D59: who owns the machine that works for others sees what is done there, and can stop it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon, two_daemons, wait_for
from support.leases import assignment, begin, finish, marker, processes_with


@pytest.fixture(scope="module")
def pair_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Daemon]]:
    """A delegator and an executor that are paired."""
    with two_daemons(tmp_path_factory.mktemp("owner")) as found:
        yield found


def test_D59_the_owner_sees_and_stops_work(pair_of: tuple[Daemon, Daemon], tmp_path: Path) -> None:
    delegator, executor = pair_of
    directory = tmp_path / "lent"
    directory.mkdir()
    one = marker()
    found = begin(delegator, directory, f"echo under way; sleep {one}")
    # The lender has its id before the executor hears of it.
    wait_for(lambda: assignment(executor, found), what="the work on the machine of the executor")
    wait_for(lambda: executor.json("output", found)["output"], what="output on the machine of the executor")
    assert executor.json("output", found[:12])["output"][0]["text"] == "under way\n"
    stopped = executor.json("cancel", found[:12])
    assert stopped["delegation_id"] == found
    assert stopped["state"] == "error"
    assert stopped["error"]["code"] == "CANCELLED"
    ended = finish(delegator, found)
    assert ended.state == "cancelled"
    assert ended.error is not None
    assert "owner" in ended.error.message
    assert processes_with(one) == []
    again = executor.run("cancel", found)
    assert "over already" in again.stderr
    attached = executor.run("attach", found, check=(6,))
    assert "under way" in attached.stdout


def test_D59_an_id_that_nobody_knows_is_told_as_such(pair_of: tuple[Daemon, Daemon]) -> None:
    executor = pair_of[1]
    for command in ("cancel", "output", "attach"):
        refused = executor.run(command, "dlg_" + "0" * 32, check=(1,))
        assert "NOT_FOUND" in refused.stderr

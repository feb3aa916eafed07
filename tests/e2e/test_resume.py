"""Work goes on under the same lease when the lender's daemon is killed, and nothing acknowledged is ever unknown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.daemons import Daemon, two_daemons, wait_for
from support.leases import ask, begin, finish, wait_state
from support.leftovers import held

HELD = """
echo one > one.txt
until [ -e go ]; do sleep 0.1; done 2>/dev/null
until echo two > two.txt; do sleep 0.2; done 2>/dev/null
echo finished
"""
Pair = tuple[Daemon, Daemon]


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A lender and a worker, paired; every test leaves them running."""
    with two_daemons(tmp_path_factory.mktemp("resume")) as both:
        yield both


def begun(lender: Daemon, project: Path, script: str = HELD, *options: str) -> str:
    """Delegate, and return the id once the agent has begun to write and both sides know it."""
    delegation = begin(lender, project, script, *options)
    wait_for(lambda: (project / "one.txt").exists(), 30, "the agent's first file")
    wait_state(lender, delegation, "running")
    return delegation


def settle(daemons: Pair) -> None:
    """Check that neither side holds anything any more."""
    for daemon in daemons:
        wait_for(lambda daemon=daemon: held(daemon) == [], 20, "the release of all that was held")
    assert daemons[1].mounts == []
    assert ask(daemons[1], lambda client: client.status()).assignments_active == 0


def test_work_goes_on_when_the_lenders_daemon_is_killed(daemons: Pair, tmp_path: Path) -> None:
    lender, _ = daemons
    delegation = begun(lender, tmp_path)
    for crash in range(2):
        lender.kill()
        (tmp_path / f"mine{crash}.txt").write_text("a person's own\n")
        lender.up()
    wait_state(lender, delegation, "running")
    (tmp_path / "go").write_text("")
    ended = finish(lender, delegation)
    assert str(ended.state) == "completed", ended
    assert (tmp_path / "two.txt").read_text() == "two\n"
    assert ended.audit is not None
    assert {file.path: file.by for file in ended.audit.files} == {
        "one.txt": "executor",
        "two.txt": "executor",
        "go": "other",
        "mine0.txt": "other",
        "mine1.txt": "other",
    }
    assert ended.usage.files_touched == 2
    settle(daemons)

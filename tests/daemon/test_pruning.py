"""Pruning takes what is over, and nothing that anybody still needs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sublet.daemon.pruning import Pruning
from sublet.protocol.lifecycle import DelegationState
from support.lender import Lender, lender

pytestmark = pytest.mark.anyio


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Lender]:
    async with lender(tmp_path) as side:
        yield side


@pytest.fixture
def pruning(side: Lender) -> Pruning:
    return Pruning(side.journal, side.auditor, side.locks)


def shadows(side: Lender) -> int:
    directory = side.root / "state" / "shadows"
    return len(list(directory.iterdir())) if directory.exists() else 0


async def test_what_is_over_goes_with_its_events_and_snapshots(side: Lender, pruning: Pruning) -> None:
    for _ in range(2):
        found = await side.running()
        side.link.done(found)
        await side.settled(found)
    assert shadows(side) == 1
    report = await pruning.run()
    assert (report.delegations, report.shadows) == (2, 1)
    assert report.events >= 12
    assert await side.journal.list_delegations() == []
    assert (await side.journal.events_after(0)).events == []
    assert shadows(side) == 0
    assert (await pruning.run()).delegations == 0
    # And the directory can be lent again.
    again = await side.running()
    side.link.done(again)
    assert (await side.settled(again)).audit is not None


async def test_what_is_under_way_keeps_all_it_needs(side: Lender, pruning: Pruning) -> None:
    first = await side.running()
    side.link.done(first)
    await side.settled(first)
    second = await side.running()
    report = await pruning.run()
    assert (report.delegations, report.shadows) == (1, 0)
    (side.project / "new.txt").write_text("x")
    side.link.done(second)
    view = await side.settled(second)
    assert view.state is DelegationState.COMPLETED
    assert view.audit is not None
    assert view.audit.added == ["new.txt"]
    assert (await pruning.run()).shadows == 1
    assert shadows(side) == 0


async def test_a_lease_of_another_directory_keeps_nothing_but_its_own(side: Lender, pruning: Pruning) -> None:
    below = side.project / "below"
    below.mkdir()
    first = await side.running(workspace_dir=str(below))
    side.link.done(first)
    await side.settled(first)
    second = await side.running()
    assert shadows(side) == 2
    assert (await pruning.run()).shadows == 1
    assert shadows(side) == 1
    side.link.done(second)
    assert (await side.settled(second)).audit is not None

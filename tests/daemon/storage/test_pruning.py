"""Pruning takes what is over, and nothing that anybody still needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from sublet.daemon.api.pruning import PruneRequest
from sublet.daemon.config.retention import Retention
from sublet.daemon.storage.prune_stores import Candidate, EndedAssignments, EndedDelegations, PruneStore, Shadows
from sublet.daemon.storage.pruning import Pruning
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.times import unix_seconds
from support.lender import Lender, lender

pytestmark = pytest.mark.anyio

ALL = PruneRequest()
DAY = 86_400


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Lender]:
    async with lender(tmp_path) as side:
        yield side


def stores(side: Lender) -> list[PruneStore]:
    journal = side.journal
    return [EndedDelegations(journal), EndedAssignments(journal), Shadows(journal, side.auditor, side.locks)]


@pytest.fixture
def pruning(side: Lender) -> Pruning:
    return Pruning(side.journal, stores(side))


def shadows(side: Lender) -> int:
    directory = side.root / "state" / "shadows"
    return len(list(directory.iterdir())) if directory.exists() else 0


async def done(side: Lender, **more: object) -> str:
    found = await side.running(**more)
    side.link.done(found)
    await side.settled(found)
    return found


async def kept(side: Lender) -> list[str]:
    return [record.id for record in await side.journal.list_delegations()]


async def test_what_is_over_goes_with_its_events_and_snapshots(side: Lender, pruning: Pruning) -> None:
    for _ in range(2):
        await done(side)
    assert shadows(side) == 1
    report = await pruning.run(ALL)
    assert report.counts == {"delegations": 2, "shadows": 1}
    assert report.store_bytes_before > report.store_bytes_after > 0
    assert report.events >= 12
    assert await kept(side) == []
    assert (await side.journal.events.events_after(0)).events == []
    assert shadows(side) == 0
    assert (await pruning.run(ALL)).counts == {}
    # And the directory can be lent again.
    again = await side.running()
    side.link.done(again)
    assert (await side.settled(again)).audit is not None


async def test_what_is_under_way_keeps_all_it_needs(side: Lender, pruning: Pruning) -> None:
    await done(side)
    second = await side.running()
    assert (await pruning.run(ALL)).counts == {"delegations": 1}
    (side.project / "new.txt").write_text("x")
    side.link.done(second)
    view = await side.settled(second)
    assert view.state is DelegationState.COMPLETED
    assert view.audit is not None
    assert view.audit.added == ["new.txt"]
    assert (await pruning.run(ALL)).counts == {"delegations": 1, "shadows": 1}
    assert shadows(side) == 0


async def test_a_lease_of_another_directory_keeps_nothing_but_its_own(side: Lender, pruning: Pruning) -> None:
    below = side.project / "below"
    below.mkdir()
    await done(side, workspace_dir=str(below))
    second = await side.running()
    assert shadows(side) == 2
    assert (await pruning.run(ALL)).counts == {"delegations": 1, "shadows": 1}
    assert shadows(side) == 1
    side.link.done(second)
    assert (await side.settled(second)).audit is not None


async def test_a_dry_run_names_everything_with_its_size_and_removes_nothing(side: Lender, pruning: Pruning) -> None:
    only = await done(side)
    told = await pruning.run(PruneRequest(dry_run=True))
    assert told.dry_run
    assert [(item.kind, item.id, item.reason) for item in told.items] == [
        ("delegations", only, "it is over"),
        ("shadows", str(side.project), "no delegation that is kept needs it"),
    ]
    assert all(item.bytes > 0 for item in told.items)
    assert told.bytes == sum(item.bytes for item in told.items)
    assert await kept(side) == [only]
    assert shadows(side) == 1
    gone = await pruning.run(ALL)
    assert (gone.counts, gone.items) == (told.counts, told.items)


async def test_only_what_is_old_enough_goes(side: Lender) -> None:
    first, second = await done(side), await done(side)
    ended = [unix_seconds((await side.record(one)).updated_at) for one in (first, second)]
    now = ended[0] + DAY
    pruning = Pruning(side.journal, stores(side), clock=lambda: now)
    request = PruneRequest(older_than_seconds=DAY)
    assert ended[1] > ended[0]
    report = await pruning.run(request)
    assert [(item.id, item.reason) for item in report.items] == [(first, "it ended more than 1 d ago")]
    assert await kept(side) == [second]
    assert shadows(side) == 1, "the second one still needs it"


async def test_the_oldest_go_until_the_rest_fits(side: Lender, pruning: Pruning) -> None:
    ids = [await done(side) for _ in range(3)]
    everything = await pruning.run(PruneRequest(dry_run=True))
    report = await pruning.run(PruneRequest(max_bytes=everything.bytes - 1))
    assert [item.id for item in report.items] == [ids[0]]
    assert (await pruning.run(PruneRequest(max_bytes=everything.bytes))).items == []
    assert (await pruning.run(PruneRequest(max_bytes=0))).counts == {"delegations": 2, "shadows": 1}


class Results:
    """A store of results that wait for somebody."""

    name = "results"

    def __init__(self, *held: Candidate) -> None:
        self.held = list(held)

    async def candidates(self) -> list[Candidate]:
        return list(self.held)

    async def remove(self, chosen: Sequence[Candidate]) -> list[Candidate]:
        self.held = [candidate for candidate in self.held if candidate not in chosen]
        return list(chosen)


async def test_a_result_that_waits_keeps_its_delegation_until_its_own_time_or_until_asked(side: Lender) -> None:
    first, second = await done(side), await done(side)
    ended = unix_seconds((await side.record(first)).updated_at)
    now = ended + DAY
    results = Results(Candidate("r1", ended, 10, frozenset({first}), pending=True))
    pruning = Pruning(side.journal, [*stores(side), results], Retention(pending_seconds=2 * DAY), clock=lambda: now)
    assert (await pruning.run(ALL)).counts == {"delegations": 1}
    assert await kept(side) == [first]
    asked = await pruning.run(PruneRequest(pending=True, dry_run=True))
    assert asked.counts == {"delegations": 1, "shadows": 1, "results": 1}
    now += DAY
    assert (await pruning.run(ALL)).counts == {"delegations": 1, "shadows": 1, "results": 1}
    assert results.held == []
    assert second not in await kept(side)


async def test_what_a_killed_prune_left_goes_the_next_time(side: Lender, pruning: Pruning) -> None:
    gone = await done(side)
    # Killed after the records went, and within the removal of another repository.
    await side.journal.forgettable.forget(delegations=[gone])
    torn = side.root / "state" / "shadows" / "gone-0123"
    (torn / "git").mkdir(parents=True)
    assert (await pruning.run(ALL)).counts == {"shadows": 1}
    assert shadows(side) == 0
    again = await side.running()
    side.link.done(again)
    assert (await side.settled(again)).audit is not None

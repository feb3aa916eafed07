"""The one writer of a delegation's record: the first end wins, and the disk never knows less than memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.delegation_views import ConditionView, ErrorView, LeaseQuota, ResultView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.keeper import DelegationKeeper, DelegationOver
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord, ResourceRecord
from sublet.daemon.storage.store import Store
from sublet.daemon.times import rfc3339
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import DelegationEvent, DelegationState, IllegalTransition

pytestmark = pytest.mark.anyio

E = DelegationEvent
NOW = 1_800_000_000.0
WAYS = (E.INVITE, E.ACCEPT, E.START, E.RUN)
ERROR = ErrorView(code="TASK_FAILED", message="it broke", hint="try again")
RESULT = ResultView(final_summary="done")
ENDING = ConditionView(kind="ending", detail="auditing")


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    store = await Store.open(tmp_path / "sublet.db")
    yield Journal(store)
    await store.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def keeper(journal: Journal, clock: Clock) -> DelegationKeeper:
    record = DelegationRecord(
        id="dlg_1",
        caller="human:",
        request=CreateDelegation(workspace_dir="/w", peer="bob", prompt="p"),
        peer="bob",
        agent=None,
        resources=(ResourceRecord(name="workspace", path="/w", access_mode="rw"),),
        description="p",
        access_mode="rw",
        ttl_seconds=60,
        quota=LeaseQuota(max_total_bytes=1, max_files=1, max_file_bytes=1),
        created_at=rfc3339(NOW),
        updated_at=rfc3339(NOW),
    )
    keeper = DelegationKeeper(record, journal, clock)
    await keeper.begin()
    return keeper


async def running(keeper: DelegationKeeper) -> DelegationKeeper:
    for event in WAYS:
        await keeper.advance(event, expires_at=rfc3339(NOW + 60))
    return keeper


async def on_disk(journal: Journal) -> DelegationRecord:
    record = await journal.load_delegation("dlg_1")
    assert record is not None
    return record


async def test_transitions_are_on_the_disk_when_they_count(keeper: DelegationKeeper, journal: Journal) -> None:
    for event in WAYS:
        await keeper.advance(event)
        assert await on_disk(journal) == keeper.record
    assert await keeper.end(E.FAIL, error=ERROR)
    assert await on_disk(journal) == keeper.record
    events = (await journal.events_after(0, "dlg_1")).events
    assert [event.data["state"] for event in events] == [
        "created", "invited", "accepted", "started", "running", "error",
    ]  # fmt: skip
    assert (events[-1].data["code"], events[-1].data["message"]) == ("TASK_FAILED", "it broke")


async def test_the_first_end_wins(keeper: DelegationKeeper) -> None:
    await running(keeper)
    won: list[DelegationEvent] = []

    async def end(event: DelegationEvent) -> None:
        if await keeper.end(event):
            won.append(event)

    async with anyio.create_task_group() as group:
        for event in (E.CANCEL, E.FAIL, E.EXPIRE, E.DONE):
            group.start_soon(end, event)
    assert won == [E.CANCEL]
    assert keeper.record.state is DelegationState.CANCELLED
    with pytest.raises(DelegationOver):
        await keeper.advance(E.RUN)
    with pytest.raises(DelegationOver):
        await keeper.conclude(RESULT, ENDING)


async def test_what_the_table_lacks_is_a_defect_and_changes_nothing(keeper: DelegationKeeper, journal: Journal) -> None:
    with pytest.raises(IllegalTransition):
        await keeper.advance(E.DONE)
    assert (await on_disk(journal)).state is keeper.record.state is DelegationState.CREATED


async def test_after_done_nothing_else_ends_it(keeper: DelegationKeeper, clock: Clock) -> None:
    await running(keeper)
    await keeper.conclude(RESULT, ENDING)
    assert keeper.over
    clock.now += 3600
    for event in (E.CANCEL, E.EXPIRE, E.FAIL):
        assert not await keeper.end(event)
    assert keeper.record.state is DelegationState.RUNNING
    assert await keeper.end(E.DONE)
    assert (keeper.record.state, keeper.record.condition) == (DelegationState.COMPLETED, None)


@pytest.mark.parametrize("event", [E.DONE, E.FAIL, E.CANCEL, E.EXPIRE])
async def test_once_the_lease_is_over_it_has_expired_whatever_comes(
    keeper: DelegationKeeper, clock: Clock, event: DelegationEvent
) -> None:
    """A reader may have been told so already."""
    await running(keeper)
    clock.now += 60
    assert await keeper.end(event, error=ERROR) is (event is E.EXPIRE)
    assert keeper.record.state is DelegationState.EXPIRED


async def test_a_done_that_comes_after_the_lease_is_too_late(keeper: DelegationKeeper, clock: Clock) -> None:
    await running(keeper)
    clock.now += 61
    with pytest.raises(DelegationOver):
        await keeper.conclude(RESULT, ENDING)
    assert keeper.record.state is DelegationState.EXPIRED
    assert keeper.record.result is None


async def test_facts_that_change_nothing_are_not_written(keeper: DelegationKeeper, journal: Journal) -> None:
    await keeper.note(hidden=[".env"])
    before = await on_disk(journal)
    await keeper.note(hidden=[".env"], condition=None)
    assert await on_disk(journal) == before
    await keeper.note(condition=ENDING)
    await keeper.note(condition=None)
    events = (await journal.events_after(0, "dlg_1")).events
    shown = [event.data["condition"] for event in events if event.kind == EventKind.DELEGATION_CONDITION]
    assert shown == [ENDING.model_dump(), None]


async def test_an_end_clears_what_was_waited_for(keeper: DelegationKeeper) -> None:
    await keeper.note(condition=ConditionView(kind="queued", detail="wait", position=1))
    await keeper.end(E.CANCEL)
    assert keeper.record.condition is None


async def test_memory_and_disk_agree_whenever_the_writer_is_cancelled(
    keeper: DelegationKeeper, journal: Journal
) -> None:
    async def cancel(scope: anyio.CancelScope, turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        scope.cancel()

    for turns in range(12):
        async with anyio.create_task_group() as group:
            group.start_soon(cancel, group.cancel_scope, turns)
            await keeper.note(hidden=[str(turns)])
        assert await on_disk(journal) == keeper.record

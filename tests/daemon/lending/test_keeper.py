"""The one writer of a delegation's record: the first end wins, and the disk never knows less than memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.delegation_views import ConditionView, LeaseQuota, ResultView
from sublet.daemon.api.delegations import CreateDelegation
from sublet.daemon.lending.keeper import DelegationKeeper
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import DelegationRecord, ResourceRecord
from sublet.daemon.storage.store import Store
from sublet.daemon.times import rfc3339
from sublet.protocol.delegation.events import (
    AcceptCame,
    CancelCame,
    Created,
    DoneCame,
    Event,
    Failed,
    Opened,
    Prepared,
    ProgressCame,
    Settled,
    TimePassed,
)
from sublet.protocol.delegation.outputs import Output, Revoke
from sublet.protocol.errors import ErrorCode, LocalCode, SubletError
from sublet.protocol.events import EventKind
from sublet.protocol.lifecycle import DelegationState
from sublet.protocol.messages import Accept

pytestmark = pytest.mark.anyio

NOW = 1_800_000_000.0
ERROR = SubletError(ErrorCode.TASK_FAILED, "it broke", "try again")
ACCEPT = Accept.model_validate({"delegation_id": "dlg_1", "remote_mount": {"mount_point": "/m"}})
WAYS: tuple[Event, ...] = (Prepared(), AcceptCame(ACCEPT), Opened(), ProgressCame(running=True))
ENDS: tuple[Event, ...] = (CancelCame(ERROR), Failed(ERROR), TimePassed(), DoneCame())
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
    await keeper.feed(Created())
    return keeper


async def running(keeper: DelegationKeeper) -> DelegationKeeper:
    for event in WAYS:
        await keeper.feed(event)
    return keeper


async def on_disk(journal: Journal) -> DelegationRecord:
    record = await journal.load_delegation("dlg_1")
    assert record is not None
    return record


async def test_transitions_are_on_the_disk_when_they_count(keeper: DelegationKeeper, journal: Journal) -> None:
    for event in (*WAYS, Failed(ERROR)):
        await keeper.feed(event)
        assert await on_disk(journal) == keeper.record
    events = (await journal.events.events_after(0, "dlg_1")).events
    assert [event.data["state"] for event in events] == [
        "created", "invited", "accepted", "started", "running", "error",
    ]  # fmt: skip
    assert (events[-1].data["code"], events[-1].data["message"]) == ("TASK_FAILED", "it broke")


async def test_nothing_is_done_before_what_it_follows_from_is_on_the_disk(
    keeper: DelegationKeeper, journal: Journal
) -> None:
    seen: list[tuple[str, DelegationState]] = []

    def look(output: Output) -> None:
        seen.append((type(output).__name__, keeper.record.state))

    keeper._perform = look
    await running(keeper)
    await keeper.feed(CancelCame(ERROR))
    assert seen == [
        ("SendInvite", DelegationState.INVITED),
        ("Open", DelegationState.ACCEPTED),
        ("Serve", DelegationState.STARTED),
        ("SendStart", DelegationState.STARTED),
        ("Revoke", DelegationState.CANCELLED),
        ("Settle", DelegationState.CANCELLED),
    ]


async def test_what_is_not_on_the_disk_is_not_done_but_access_is_cut(
    keeper: DelegationKeeper, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise SubletError(LocalCode.UNAVAILABLE, "the disk is full")

    await running(keeper)
    monkeypatch.setattr(journal, "save_delegation", full)
    outputs = await keeper.feed(CancelCame(ERROR))
    assert [type(output) for output in outputs] == [Revoke]
    assert keeper.over
    assert (await on_disk(journal)).state is keeper.record.state is DelegationState.RUNNING


async def test_the_first_end_wins(keeper: DelegationKeeper) -> None:
    await running(keeper)
    won: list[Event] = []

    async def end(event: Event) -> None:
        if await keeper.feed(event):
            won.append(event)

    async with anyio.create_task_group() as group:
        for event in ENDS:
            group.start_soon(end, event)
    assert won == [ENDS[0]]
    assert keeper.record.state is DelegationState.CANCELLED
    assert await keeper.feed(ProgressCame(running=True)) == ()


async def test_after_done_nothing_else_ends_it(keeper: DelegationKeeper, clock: Clock) -> None:
    await running(keeper)
    await keeper.feed(DoneCame(), {"result": RESULT, "condition": ENDING})
    assert keeper.over
    clock.now += 3600
    for event in ENDS:
        assert await keeper.feed(event) == ()
    assert keeper.record.state is DelegationState.RUNNING
    await keeper.feed(Settled(told=True), {"condition": None})
    assert (keeper.record.state, keeper.record.condition) == (DelegationState.COMPLETED, None)


@pytest.mark.parametrize("event", ENDS, ids=lambda event: type(event).__name__)
async def test_once_the_lease_is_over_it_has_expired_whatever_comes(
    keeper: DelegationKeeper, clock: Clock, event: Event
) -> None:
    """A reader may have been told so already."""
    await running(keeper)
    clock.now += 60
    await keeper.feed(event, {"result": RESULT}, fits=lambda record: record.now.done)
    assert keeper.record.state is DelegationState.EXPIRED
    assert keeper.record.result is None


async def test_facts_that_change_nothing_are_not_written(keeper: DelegationKeeper, journal: Journal) -> None:
    await keeper.note(hidden=[".env"])
    before = await on_disk(journal)
    await keeper.note(hidden=[".env"], condition=None)
    assert await on_disk(journal) == before
    await keeper.note(condition=ENDING)
    await keeper.note(condition=None)
    events = (await journal.events.events_after(0, "dlg_1")).events
    shown = [event.data["condition"] for event in events if event.kind == EventKind.DELEGATION_CONDITION]
    assert shown == [ENDING.model_dump(), None]


async def test_an_end_clears_what_was_waited_for(keeper: DelegationKeeper) -> None:
    await keeper.note(condition=ConditionView(kind="queued", detail="wait", position=1))
    await keeper.feed(CancelCame(ERROR))
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

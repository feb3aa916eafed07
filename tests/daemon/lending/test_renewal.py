"""Work that runs is renewed, extended and given more to do, by the newest process of the delegator's only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from sublet.daemon.times import rfc3339
from sublet.policy.config import PolicyConfig
from sublet.policy.decision import Action
from sublet.policy.rules import Condition, Rule
from sublet.protocol.assignment.prompts import MAX_WAITING_FOLLOW_UPS
from sublet.protocol.errors import ErrorCode, SubletError
from sublet.protocol.messages import Done, FollowUp, Progress, Start
from sublet.protocol.times import unix_seconds
from sublet.supervisor.job import Job, Outcome, Report
from support.worker import ALICE, HERE, MALLORY, Worker, worker

pytestmark = pytest.mark.anyio

ENDS = 4102444800.0
"""What START says in these tests by the delegator's clock."""


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Worker]:
    async with worker(tmp_path) as side:
        yield side


class Held:
    """An agent that works on each prompt until it is let go."""

    def __init__(self, side: Worker) -> None:
        self.prompts: asyncio.Queue[str] = asyncio.Queue()
        self.go = asyncio.Event()
        self.outcome = Outcome("done", "done", 0)
        side.agent.work = self._work

    async def _work(self, job: Job, report: Report) -> Outcome:
        self.prompts.put_nowait(job.prompt)
        await self.go.wait()
        return self.outcome


async def renew(side: Worker, start: Start, *, later: float = 0, peer: object = ALICE, **sublet: object) -> int:
    """Send START again, whose lease ends ``later`` seconds later than at first, and return what is agreed to."""
    message = start.model_copy(
        update={
            "lease": start.lease.model_copy(update={"expires_at": rfc3339(ENDS + later)}),
            "sublet": start.sublet.model_validate({**start.sublet.model_dump(), **sublet}),
        }
    )
    accept = await side.executor.renew(message, peer, source_host=HERE)  # type: ignore[arg-type]
    seconds = accept.remote_constraints.max_ttl_seconds
    assert seconds is not None
    return seconds


async def refusal(side: Worker, start: Start, **changes: object) -> str:
    with pytest.raises(SubletError) as caught:
        await renew(side, start, **changes)  # type: ignore[arg-type]
    assert caught.value.code in (ErrorCode.DECLINED, ErrorCode.START_EXPIRED)
    return caught.value.message


async def test_only_the_newest_process_is_heard(side: Worker) -> None:
    held = Held(side)
    start = side.start(await side.accepted())
    async with asyncio.TaskGroup() as group:
        working = group.create_task(side.updates(start))
        await held.prompts.get()
        assert 58 <= await renew(side, start, generation=3, remaining_seconds=60) <= 60
        assert (await side.record()).generation == 3
        assert "another process" in await refusal(side, start, generation=2)
        assert "no such delegation" in await refusal(side, start, generation=4, peer=MALLORY)
        held.go.set()
    assert isinstance(working.result()[-1], Done)
    await side.check_nothing_held()


async def test_an_extension_is_granted_up_to_the_limit_here(side: Worker) -> None:
    held = Held(side)
    start = side.start(await side.accepted())
    async with asyncio.TaskGroup() as group:
        group.create_task(side.updates(start))
        await held.prompts.get()
        run = side.executor._runs["dlg_1"]
        before = run.deadline.at
        assert 158 <= await renew(side, start, later=100, remaining_seconds=160) <= 160
        assert run.deadline.at - before > 90
        assert unix_seconds((await side.record()).expires_at or "") == ENDS + 100
        # The executor of these tests allows 600 s, and they count from the start.
        assert 590 <= await renew(side, start, later=9000, remaining_seconds=9060) <= 600
        agreed = unix_seconds((await side.record()).expires_at or "")
        assert ENDS + 500 < agreed < ENDS + 600
        held.go.set()


async def test_time_is_never_added_by_what_is_no_extension(side: Worker) -> None:
    held = Held(side)
    start = side.start(await side.accepted())
    async with asyncio.TaskGroup() as group:
        group.create_task(side.updates(start))
        await held.prompts.get()
        assert await renew(side, start, remaining_seconds=500) <= 60
        assert await renew(side, start, remaining_seconds=20) == 20
        assert await renew(side, start, remaining_seconds=60) <= 20
        assert "over before" in await refusal(side, start, remaining_seconds=0)
        held.go.set()


async def test_policy_is_asked_for_an_extension(tmp_path: Path) -> None:
    rule = Rule(
        id="short", effect="deny", layer="agent", kinds=frozenset({"peer"}),
        actions=frozenset({Action.ASSIGNMENT_ACCEPT}), when={"ttl_seconds": Condition(minimum=100)}, reason="too long",
    )  # fmt: skip
    async with worker(tmp_path, config=PolicyConfig(rules=(rule,))) as side:
        held = Held(side)
        start = side.start(await side.accepted())
        async with asyncio.TaskGroup() as group:
            group.create_task(side.updates(start))
            await held.prompts.get()
            assert await renew(side, start, remaining_seconds=60) <= 60
            assert await refusal(side, start, later=100, remaining_seconds=160) == "too long"
            held.go.set()


async def test_access_is_never_widened(side: Worker) -> None:
    held = Held(side)
    start = side.start(await side.accepted(access_mode="ro"), mode="ro")
    wider = start.model_copy(update={"lease": start.lease.model_copy(update={"access_mode": "rw"})})
    async with asyncio.TaskGroup() as group:
        group.create_task(side.updates(start))
        await held.prompts.get()
        with pytest.raises(SubletError, match="ro access"):
            await side.executor.renew(wider, ALICE, source_host=HERE)
        held.go.set()


async def test_follow_ups_are_worked_on_in_order_and_once(side: Worker) -> None:
    held = Held(side)
    start = side.start(await side.accepted(prompt="first"))
    async with asyncio.TaskGroup() as group:
        working = group.create_task(side.updates(start))
        assert await held.prompts.get() == "first"
        for name in ("second", "third", "second"):
            await renew(side, start, follow_up=FollowUp(id=name, prompt=name))
        held.go.set()
    assert [held.prompts.get_nowait() for _ in range(2)] == ["second", "third"]
    assert held.prompts.empty()
    notes = [one.text for one in working.result() if isinstance(one, Progress) and one.stream == "note" and one.text]
    assert notes == ["Follow-up 1 begins: second\n", "Follow-up 2 begins: third\n"]
    told = [{p.follow_up_id: p.state for p in one.prompts} for one in working.result() if isinstance(one, Progress)]
    changes = [now for before, now in pairwise(told) if now != before]
    assert changes == [
        {None: "done"},
        {None: "done", "second": "running"},
        {None: "done", "second": "done"},
        {None: "done", "second": "done", "third": "running"},
        {None: "done", "second": "done", "third": "done"},
    ]
    assert {job.mount_point for job in side.agent.jobs} == {side.agent.jobs[0].mount_point}
    assert isinstance(working.result()[-1], Done)
    await side.check_nothing_held()


async def test_a_follow_up_may_mend_what_failed(side: Worker) -> None:
    outcomes = [Outcome("failed", "no", 1), Outcome("done", "mended", 0)]
    go = asyncio.Event()

    async def work(job: Job, report: Report) -> Outcome:
        await go.wait()
        return outcomes.pop(0)

    side.agent.work = work
    start = side.start(await side.accepted())
    async with asyncio.TaskGroup() as group:
        working = group.create_task(side.updates(start))
        await side.agent.began.wait()
        await renew(side, start, follow_up=FollowUp(id="one", prompt="again"))
        go.set()
    done = working.result()[-1]
    assert isinstance(done, Done)
    assert done.final_summary == "mended"
    assert [(one.follow_up_id, one.state, one.exit_code) for one in done.sublet.prompts] == [
        (None, "failed", 1),
        ("one", "done", 0),
    ]
    assert any("after the agent ended with exit code 1" in one.text for one in working.result()[:-1])  # type: ignore[union-attr]


async def test_follow_ups_are_bounded(side: Worker) -> None:
    held = Held(side)
    start = side.start(await side.accepted())
    async with asyncio.TaskGroup() as group:
        group.create_task(side.updates(start))
        await held.prompts.get()
        for number in range(MAX_WAITING_FOLLOW_UPS):
            await renew(side, start, follow_up=FollowUp(id=f"f{number}", prompt="more"))
        assert "wait already" in await refusal(side, start, follow_up=FollowUp(id="one-too-many", prompt="more"))
        held.go.set()


async def test_what_comes_too_late_is_refused(side: Worker) -> None:
    start = side.start(await side.accepted())
    await side.updates(start)
    late = await refusal(side, start, follow_up=FollowUp(id="late", prompt="more"))
    assert "nothing to go on with" in late
    assert "completed" in late

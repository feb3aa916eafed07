"""The executor's side: INVITE to unmount, with a real lender and real mounts, and every way it can go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path

import anyio
import asyncssh
import pytest
from structlog.testing import capture_logs

from sublet.daemon.ports.given_to_a2a import KnownPeer
from sublet.daemon.storage.journal import Journal
from sublet.daemon.storage.records import AssignmentRecord
from sublet.daemon.storage.resource_log import NOTHING, ResourceChange
from sublet.daemon.working import data_link
from sublet.daemon.working import executor as executor_module
from sublet.policy.config import PolicyConfig
from sublet.policy.decision import Action
from sublet.policy.rules import Rule
from sublet.protocol.canonical import JsonValue
from sublet.protocol.errors import AgentEnd, ErrorCode, LocalCode, SubletError
from sublet.protocol.events import Event, EventKind
from sublet.protocol.lifecycle import AssignmentState
from sublet.protocol.messages import Done, Progress, Start
from sublet.supervisor.job import Job, Outcome, Output, Report
from sublet.workspace.mount import mount as mount_module
from sublet.workspace.mount import mounts as mounts_module
from sublet.workspace.mount.mount import Mount
from sublet.workspace.mount.table import is_mounted
from sublet.workspace.serving.listener import DataPlane
from support.worker import ALICE, HERE, MALLORY, Worker, invite, work_for_ever, worker

pytestmark = pytest.mark.anyio


@pytest.fixture
async def side(tmp_path: Path) -> AsyncIterator[Worker]:
    async with worker(tmp_path) as side:
        yield side
        await side.check_nothing_held()


def phases(updates: list[Progress | Done]) -> list[str]:
    return [update.phase for update in updates if isinstance(update, Progress) and not update.text]


async def run_in(group: anyio.abc.TaskGroup, side: Worker, start: Start) -> list[Progress | Done | SubletError]:
    """Follow START in a task of its own; then the list holds what was said, or the error."""
    said: list[Progress | Done | SubletError] = []

    async def follow() -> None:
        try:
            said.extend(await side.updates(start))
        except SubletError as error:
            said.append(error)

    group.start_soon(follow)
    return said


# The whole way


async def test_an_assignment_goes_all_the_way(side: Worker) -> None:
    async def edit(job: Job, report: Report) -> Outcome:
        report(Output("stdout", "reading\n"))
        text = await asyncio.to_thread((job.workspace / "hello.txt").read_text)
        await asyncio.to_thread((job.workspace / "hello.txt").write_text, text + "there\n")
        assert job.scratch.is_dir()
        return Outcome("done", "said hello", 0)

    side.agent.work = edit
    accept = await side.accepted()
    constraints = accept.remote_constraints
    assert accept.remote_mount.mount_point == str(side.mounts.root / "dlg_1")
    assert (constraints.accepted_access_mode, constraints.max_ttl_seconds) == ("rw", 60)
    assert accept.sublet.sandbox_enforced == ["cwd_only"]
    assert (await side.record()).state is AssignmentState.PENDING
    updates = await side.updates(side.start(accept))
    assert phases(updates) == ["mounting", "running", "unmounting"]
    done = updates[-1]
    assert isinstance(done, Done)
    assert (done.final_summary, done.sublet.exit_code) == ("said hello", 0)
    assert (side.project / "hello.txt").read_text() == "hi\nthere\n"
    [job] = side.agent.jobs
    assert (job.prompt, job.access_mode) == ("do it", "rw")
    assert job.remaining_seconds <= 60
    record = await side.record()
    assert (record.state, record.outcome, record.exit_code) == (AssignmentState.COMPLETED, "done", 0)
    events = (await side.journal.events.events_after(0, "dlg_1")).events
    assert [e.data["state"] for e in events if e.kind == EventKind.ASSIGNMENT_STATE] == [
        "pending",
        "active",
        "completed",
    ]


async def test_the_log_tells_the_owner_whose_work_was_done_here(side: Worker) -> None:
    async def work(job: Job, report: Report) -> Outcome:
        return Outcome("failed", "no", 3)

    side.agent.work = work
    start = side.start(await side.accepted())
    with capture_logs() as lines, pytest.raises(SubletError):
        await side.updates(start)

    told = [line for line in lines if line["event"] in {"work begins", "work ends"}]
    assert [line["event"] for line in told] == ["work begins", "work ends"]
    assert all((line["peer"], line["delegation_id"]) == (ALICE.name, "dlg_1") for line in told)
    assert (told[1]["ended"], told[1]["exit_code"]) == ("TASK_FAILED", 3)


async def test_an_executor_that_is_dialled_works_the_same(side: Worker) -> None:
    own = DataPlane(asyncssh.generate_private_key("ssh-ed25519"), side.reverse)
    await own.start("127.0.0.1", 0)
    host, side.reverse_port = own.address
    async with anyio.create_task_group() as group:
        group.start_soon(own.serve)
        accept = await side.accepted()
        assert accept.sublet.reverse is not None
        said: list[Progress | Done] = []
        start = side.start(accept, data_path="reverse")
        async for update in side.executor.run(start, ALICE, source_host=HERE):
            said.append(update)
            if isinstance(update, Progress) and update.phase == "need_reverse":
                group.start_soon(side.lender.dial, host, accept.sublet.reverse.port, "dlg_1")
        assert phases(said) == ["mounting", "need_reverse", "running", "unmounting"]
        assert isinstance(said[-1], Done)
        group.cancel_scope.cancel()


async def test_a_slow_reader_loses_progress_and_is_told_but_never_loses_done(side: Worker) -> None:
    async def chatter(job: Job, report: Report) -> Outcome:
        for number in range(2_000):
            report(Output("stdout", f"{number:04d}\n"))
        return Outcome("done", "talked", 0)

    side.agent.work = chatter
    start = side.start(await side.accepted())
    async with aclosing(side.executor.run(start, ALICE, source_host=HERE)) as updates:
        assert isinstance(await anext(updates), Progress)
        await side.agent.ended.wait()
        with anyio.fail_after(20):
            while is_mounted(side.mounts.root / "dlg_1"):
                await asyncio.sleep(0.01)
        rest = [update async for update in updates]
    assert isinstance(rest[-1], Done)
    told = [update for update in rest if isinstance(update, Progress)]
    assert len(told) <= 256
    kept = sum(len(update.text) for update in told)
    # What was dropped after the last piece that fitted has nobody left to be told by.
    assert kept + sum(update.dropped_chars for update in told) <= 10_000


# INVITE


async def give_up(side: Worker, name: str = "dlg_1") -> None:
    await side.executor.cancel(name, ALICE)


async def test_the_same_invite_gets_the_same_answer_while_it_waits(side: Worker) -> None:
    first = await side.accepted()
    assert await side.accepted() == first
    for message, peer in ((invite(prompt="something else"), ALICE), (invite(), MALLORY)):
        with pytest.raises(SubletError) as no:
            await side.executor.invite(message, peer, source_host=HERE)
        assert no.value.code is ErrorCode.DECLINED
    await give_up(side)
    with pytest.raises(SubletError, match="used before"):
        await side.accepted()


@pytest.mark.parametrize(
    ("lease", "code", "says"),
    [
        ({"agent": "nobody"}, ErrorCode.DECLINED, "there is no agent 'nobody'"),
        ({"transport": "nfs"}, ErrorCode.DEP_MISSING, "transport nfs is not served"),
        ({"require_enforced": ["memory", "cwd_only"]}, ErrorCode.DECLINED, "requires is not enforced here: memory"),
    ],
)
async def test_what_is_not_offered_is_refused(
    side: Worker, lease: dict[str, object], code: ErrorCode, says: str
) -> None:
    with pytest.raises(SubletError, match=says) as no:
        await side.executor.invite(invite("dlg_1", **lease), ALICE, source_host=HERE)
    assert no.value.code is code


async def test_policy_is_asked_for_every_invite(tmp_path: Path) -> None:
    rule = Rule(
        id="no.alice", effect="deny", layer="agent", kinds=frozenset({"peer"}), name="alice",
        actions=frozenset({Action.ASSIGNMENT_ACCEPT}), reason="alice is on leave",
    )  # fmt: skip
    async with worker(tmp_path, config=PolicyConfig(rules=(rule,))) as side:
        with pytest.raises(SubletError, match="alice is on leave") as no:
            await side.accepted()
        assert no.value.code is ErrorCode.DECLINED
        await side.check_nothing_held()


async def test_the_time_is_narrowed_to_what_is_allowed_here(side: Worker) -> None:
    accept = await side.accepted(ttl_seconds=86_400)
    assert accept.remote_constraints.max_ttl_seconds == 600
    await give_up(side)


async def test_slots_are_bounded_and_come_back(side: Worker) -> None:
    await side.accepted("dlg_1")
    await side.accepted("dlg_2")
    with pytest.raises(SubletError, match="all 2 slots") as no:
        await side.accepted("dlg_3")
    assert no.value.code is ErrorCode.DECLINED
    assert "Try again" in no.value.hint
    await give_up(side, "dlg_1")
    await side.accepted("dlg_3")
    await give_up(side, "dlg_2")
    await give_up(side, "dlg_3")


async def test_a_peer_that_only_promises_itself_slots_keeps_no_other_waiting(side: Worker) -> None:
    first = await side.accepted("dlg_1")
    await side.accepted("dlg_2")
    accept = await side.executor.invite(invite("dlg_3"), MALLORY, source_host=HERE)
    assert accept.delegation_id == "dlg_3"
    assert side.slots.in_use == 2
    with pytest.raises(SubletError, match="all 2 slots"):
        await side.accepted("dlg_4")
    with pytest.raises(SubletError) as no:
        await side.updates(side.start(first))
    assert no.value.code is ErrorCode.DECLINED
    await side.executor.cancel("dlg_3", MALLORY)
    await give_up(side, "dlg_2")


async def test_a_mount_point_that_is_not_empty_is_denied_and_left_alone(side: Worker) -> None:
    precious = side.mounts.root / "dlg_1"
    precious.mkdir(parents=True)
    (precious / "thesis.txt").write_text("do not touch")
    with pytest.raises(SubletError) as no:
        await side.accepted()
    assert no.value.code is ErrorCode.MOUNTPOINT_DENIED
    assert (precious / "thesis.txt").read_text() == "do not touch"
    assert side.slots.in_use == 0
    assert await side.journal.resources.open_resources() == []
    (precious / "thesis.txt").unlink()
    precious.rmdir()


class FailingJournal(Journal):
    """Fails with the state that the test names."""

    fails_on: AssignmentState | None = None

    async def save_assignment(
        self,
        record: AssignmentRecord,
        kind: EventKind | None = None,
        data: Mapping[str, JsonValue] | None = None,
        held: ResourceChange = NOTHING,
    ) -> Event | None:
        if record.state is self.fails_on:
            raise SubletError(LocalCode.UNAVAILABLE, "the store failed: disk is full", "Free some space.")
        return await super().save_assignment(record, kind, data, held)


@pytest.mark.parametrize("state", list(AssignmentState))
async def test_a_journal_that_fails_leaves_nothing_held_and_the_service_alive(
    tmp_path: Path, state: AssignmentState
) -> None:
    async with worker(tmp_path, journal=FailingJournal) as side:
        assert isinstance(side.journal, FailingJournal)
        side.journal.fails_on = state
        if state is AssignmentState.ERROR:
            await side.accepted()
            await give_up(side)
        else:
            with pytest.raises(SubletError) as no:
                await side.updates(side.start(await side.accepted()))
            assert no.value.code is LocalCode.UNAVAILABLE
        await side.check_nothing_held()
        side.journal.fails_on = None
        side.lender.revoke("dlg_1", "over")
        assert isinstance((await side.updates(side.start(await side.accepted("dlg_2"))))[-1], Done)
        await side.check_nothing_held()


async def test_an_invite_that_is_given_up_half_way_leaves_all_or_nothing(side: Worker) -> None:
    for turns in range(0, 40, 4):
        with anyio.CancelScope() as scope:

            async def give_up_soon(turns: int = turns, scope: anyio.CancelScope = scope) -> None:
                for _ in range(turns):
                    await asyncio.sleep(0)
                scope.cancel()

            async with anyio.create_task_group() as group:
                group.start_soon(give_up_soon)
                await side.accepted(f"dlg_{turns}")
        if await side.journal.load_assignment(f"dlg_{turns}") is not None:
            await give_up(side, f"dlg_{turns}")
        await side.check_nothing_held()


# START


async def test_only_one_start_is_taken(side: Worker) -> None:
    side.agent.work = work_for_ever
    start = side.start(await side.accepted())
    async with anyio.create_task_group() as group:
        first = await run_in(group, side, start)
        second = await run_in(group, side, start)
        await side.agent.began.wait()
        [no] = second
        assert isinstance(no, SubletError)
        assert no.code is ErrorCode.DECLINED
        await give_up(side)
    assert isinstance(first[-1], SubletError)
    assert len(side.agent.jobs) == 1
    with pytest.raises(SubletError, match="it is error"):
        await side.updates(start)


async def test_a_start_that_never_comes_gives_everything_back(side: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_module, "start_seconds", lambda _: 0.05)
    accept = await side.accepted()
    start = side.start(accept)
    cursor = (await side.journal.events.events_after(0)).cursor
    await side.journal.events.wait_for_events(cursor, "dlg_1", timeout=10)
    record = await side.record()
    assert record.error is not None
    assert record.error.message.startswith("no START came")
    with pytest.raises(SubletError) as no:
        await side.updates(start)
    assert no.value.code is ErrorCode.DECLINED
    with anyio.fail_after(10):
        while side.mounts.root.joinpath("dlg_1").exists() or await side.journal.resources.open_resources():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("mode", "changes", "code"),
    [
        ("rw", {}, ErrorCode.DECLINED),
        ("ro", {"remaining_seconds": 0}, ErrorCode.START_EXPIRED),
        ("ro", {"host_key": None}, ErrorCode.AUTH_FAILED),
    ],
)
async def test_a_start_that_does_not_fit_its_accept_is_refused(
    side: Worker, mode: str, changes: dict[str, object], code: ErrorCode
) -> None:
    accept = await side.accepted(access_mode="ro")
    with pytest.raises(SubletError) as no:
        await side.updates(side.start_message(accept, 60, mode=mode, **changes))
    assert no.value.code is code
    assert side.agent.jobs == []
    await give_up(side)


async def test_a_start_whose_time_is_over_by_the_clock_is_refused(side: Worker) -> None:
    accept = await side.accepted()
    start = side.start_message(accept, remaining_seconds=None)
    lease = start.lease.model_copy(update={"expires_at": "2020-01-01T00:00:00Z"})
    with pytest.raises(SubletError) as no:
        await side.updates(start.model_copy(update={"lease": lease}))
    assert no.value.code is ErrorCode.START_EXPIRED
    await give_up(side)


async def test_start_gives_no_more_time_than_was_accepted(side: Worker) -> None:
    await side.updates(side.start(await side.accepted(ttl_seconds=30), seconds=500))
    assert side.agent.jobs[0].remaining_seconds <= 30


@pytest.mark.parametrize("key", ["ssh-ed25519 AAAA", "nonsense", HERE])
async def test_a_host_key_that_is_not_the_lenders_is_not_trusted(side: Worker, key: str) -> None:
    accept = await side.accepted()
    with pytest.raises(SubletError) as no:
        await side.updates(side.start(accept, host_key=key))
    assert no.value.code is ErrorCode.AUTH_FAILED
    assert side.agent.jobs == []


async def test_a_lender_that_is_not_there_is_told_of_soon(side: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert data_link.FIRST_LINK_SECONDS <= 30
    monkeypatch.setattr(data_link, "FIRST_LINK_SECONDS", 1.0)
    accept = await side.accepted()
    start = side.start(accept)
    side.lender.close()
    with pytest.raises(SubletError) as no:
        await side.updates(start)
    assert no.value.code is ErrorCode.MOUNT_FAILED
    assert (await side.record()).error is not None


async def test_strangers_learn_nothing(side: Worker) -> None:
    await side.accepted()
    stranger: KnownPeer = MALLORY
    with pytest.raises(SubletError, match="no such delegation of yours"):
        await side.executor.cancel("dlg_1", stranger)
    with pytest.raises(SubletError, match="no such delegation of yours"):
        await side.executor.check_owner("dlg_1", stranger)
    with pytest.raises(SubletError, match="no such delegation of yours"):
        await side.executor.cancel("dlg_none", ALICE)
    await side.executor.check_owner("dlg_1", ALICE)
    await give_up(side)


# The end


async def test_a_cancel_ends_the_agent_and_unmounts(side: Worker) -> None:
    side.agent.work = work_for_ever
    start = side.start(await side.accepted())
    async with anyio.create_task_group() as group:
        said = await run_in(group, side, start)
        await side.agent.began.wait()
        async with anyio.create_task_group() as cancels:
            cancels.start_soon(give_up, side)
            cancels.start_soon(give_up, side)
        assert side.agent.ended.is_set()
        assert not is_mounted(side.mounts.root / "dlg_1")
        await give_up(side)
    error = said[-1]
    assert isinstance(error, SubletError)
    assert error.code is ErrorCode.CANCELLED
    record = await side.record()
    assert record.state is AssignmentState.ERROR
    assert record.error is not None
    assert record.error.code == "CANCELLED"


async def test_a_cancel_that_comes_right_after_start_is_not_lost(side: Worker) -> None:
    side.agent.work = work_for_ever
    start = side.start(await side.accepted())
    async with anyio.create_task_group() as group:
        said = await run_in(group, side, start)
        await asyncio.sleep(0)
        await give_up(side)
    error = said[-1]
    assert isinstance(error, SubletError)
    assert error.code is ErrorCode.CANCELLED
    assert side.agent.jobs == []


async def test_a_reader_that_goes_away_ends_the_work(side: Worker) -> None:
    side.agent.work = work_for_ever
    updates = side.executor.run(side.start(await side.accepted()), ALICE, source_host=HERE)
    async with aclosing(updates) as stream:
        async for update in stream:
            if isinstance(update, Progress) and update.phase == "running":
                await side.agent.began.wait()
                break
    record = await side.record()
    assert record.error is not None
    assert record.error.message == "the delegator no longer listens"
    assert side.agent.ended.is_set()


async def test_the_end_of_the_lease_ends_the_agent(side: Worker) -> None:
    side.agent.work = work_for_ever
    accept = await side.accepted(ttl_seconds=1)
    with pytest.raises(SubletError) as no:
        await side.updates(side.start(accept, seconds=60, remaining_seconds=1))
    assert no.value.code is ErrorCode.EXPIRED


async def test_a_cancel_at_the_end_of_the_lease_is_its_end(side: Worker) -> None:
    """The delegator cancels a lease that is over, and may do so before our own clock says that it is."""
    side.agent.work = work_for_ever
    start = side.start(await side.accepted(ttl_seconds=1), seconds=60, remaining_seconds=1)
    async with anyio.create_task_group() as group:
        said = await run_in(group, side, start)
        await side.agent.began.wait()
        await asyncio.sleep(0.6)
        await give_up(side)
    error = said[-1]
    assert isinstance(error, SubletError)
    assert error.code is ErrorCode.EXPIRED


@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Outcome("failed", "no\nsuch test", 3, "exit status 3"), "the agent ended with exit code 3"),
        (Outcome("crashed", "", None, "ended by SIGSEGV"), "the agent crashed: ended by SIGSEGV"),
        (Outcome("timeout", "half way", None, "ended after 5 s"), "the agent ran out of time: ended after 5 s"),
    ],
)
async def test_work_that_fails_says_how(side: Worker, outcome: Outcome, says: str) -> None:
    async def fail(job: Job, report: Report) -> Outcome:
        return outcome

    side.agent.work = fail
    accept = await side.accepted()
    with pytest.raises(SubletError) as no:
        await side.updates(side.start(accept))
    # An agent that exceeds its own limit has not let the lease run out.
    assert (no.value.code, no.value.message) == (ErrorCode.TASK_FAILED, says)
    assert no.value.hint == f"`sublet output {accept.delegation_id}` has all it printed."
    # What it printed is no part of the sentence; it travels beside it, with its line breaks.
    assert no.value.agent_end == AgentEnd(outcome.reason, outcome.exit_code, outcome.summary)
    assert (await side.record()).outcome == outcome.reason


@pytest.mark.parametrize(
    ("failure", "code", "says"),
    [
        (RuntimeError("a defect"), ErrorCode.TASK_FAILED, "internal error"),
        (SubletError(ErrorCode.DEP_MISSING, "no bwrap"), ErrorCode.DEP_MISSING, "no bwrap"),
    ],
)
async def test_an_agent_that_can_not_be_run(side: Worker, failure: Exception, code: ErrorCode, says: str) -> None:
    async def fail(job: Job, report: Report) -> Outcome:
        raise failure

    side.agent.work = fail
    with pytest.raises(SubletError, match=says) as no:
        await side.updates(side.start(await side.accepted()))
    assert no.value.code is code


@pytest.mark.parametrize("mode", ["rw", "ro"])
async def test_work_whose_last_writes_did_not_arrive_is_not_done(
    side: Worker, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    detach = Mount.detach

    async def unflushed(mount: Mount, *, flush: bool = True) -> bool:
        await detach(mount)
        return False

    monkeypatch.setattr(Mount, "detach", unflushed)
    start = side.start(await side.accepted(access_mode=mode), mode=mode)
    if mode == "ro":
        assert isinstance((await side.updates(start))[-1], Done)
        return
    with pytest.raises(SubletError, match="its last writes did not all reach") as no:
        await side.updates(start)
    assert no.value.code is ErrorCode.TASK_FAILED
    record = await side.record()
    assert (record.state, record.outcome) == (AssignmentState.ERROR, "done")


async def test_a_link_that_is_lost_ends_the_agent(side: Worker) -> None:
    side.agent.work = work_for_ever
    start = side.start(await side.accepted())
    async with anyio.create_task_group() as group:
        said = await run_in(group, side, start)
        await side.agent.began.wait()
        side.lender.revoke("dlg_1", "the delegator has died")
        await side.agent.ended.wait()
    error = said[-1]
    assert isinstance(error, SubletError)
    assert error.code is ErrorCode.MOUNT_FAILED


async def test_a_removed_peers_work_ends(side: Worker) -> None:
    side.agent.work = work_for_ever
    start = side.start(await side.accepted("dlg_1"))
    await side.accepted("dlg_2")
    async with anyio.create_task_group() as group:
        said = await run_in(group, side, start)
        await side.agent.began.wait()
        await side.executor.end_peer(MALLORY.fingerprint, "mallory was removed")
        assert side.executor.active == 1
        await side.executor.end_peer(ALICE.fingerprint, "alice was removed")
    assert isinstance(said[-1], SubletError)
    for name in ("dlg_1", "dlg_2"):
        error = (await side.record(name)).error
        assert error is not None
        assert error.message == "alice was removed"


async def test_a_stop_ends_what_runs_and_what_waits(tmp_path: Path) -> None:
    async with anyio.create_task_group() as group:
        async with worker(tmp_path) as side:
            side.agent.work = work_for_ever
            start = side.start(await side.accepted("dlg_1"))
            await side.accepted("dlg_2")
            said = await run_in(group, side, start)
            await side.agent.began.wait()
        error = said[-1]
        assert isinstance(error, SubletError)
        assert error.code is ErrorCode.CANCELLED
    async with worker(tmp_path) as after:
        for name in ("dlg_1", "dlg_2"):
            ended = (await after.record(name)).error
            assert ended is not None
            assert ended.message == "the executor's daemon was stopped"
        await after.check_nothing_held()
    for attempt in (side.accepted("dlg_3"), side.updates(start)):
        with pytest.raises(SubletError):
            await attempt


async def test_a_stop_does_not_wait_for_a_mount_that_can_not_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(mount: Mount, *, flush: bool = True) -> bool:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(executor_module, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(Mount, "detach", hang)
    async with anyio.create_task_group() as group:
        async with worker(tmp_path) as side:
            side.agent.work = work_for_ever
            await run_in(group, side, side.start(await side.accepted()))
            await side.agent.began.wait()
            # Not before: who mounts asks by it whether the mount is there.
            for module in (mount_module, mounts_module):
                monkeypatch.setattr(module, "is_mounted", lambda _: True)
        assert side.executor.active == 0
    async with worker(tmp_path) as after:
        # What is left mounted stays journalled, for the next start to see.
        assert [held.kind for held in await after.journal.resources.open_resources()] == ["mount"]
        assert (await after.record()).state is AssignmentState.ERROR


NODE = "node-bbbbbbbbbbbbbbbb"  # the executor's own


@pytest.mark.parametrize(
    ("callers", "says"),
    [
        ([f"test@{NODE}"], "LOOP_REFUSED"),
        ([f"TEST@{NODE.upper()}"], "LOOP_REFUSED"),
        (["a@node-1", f"test@{NODE}", "c@node-3"], "LOOP_REFUSED"),
        (["a@node-1", "b@node-2", "a@node-1"], "LOOP_REFUSED"),
        ([f"a@node-{number}" for number in range(6)], "nested 6 deep"),
        (["nobody"], "no address"),
        (["te\u0455t@node-1"], "no address"),
    ],
)
async def test_a_chain_that_loops_or_nests_too_deep_is_declined_before_anything_is_held(
    tmp_path: Path, callers: list[str], says: str
) -> None:
    chain = {"execution_chain": callers, "lease_id": "lse_1", "ttl": 60}
    async with worker(tmp_path) as side:
        asked = invite()
        message = asked.model_copy(
            update={"sublet": type(asked.sublet).model_validate({**asked.sublet.model_dump(), "chain": chain})}
        )
        with pytest.raises(SubletError, match=says) as no:
            await side.executor.invite(message, ALICE, source_host=HERE)
        assert no.value.code is ErrorCode.DECLINED
        if says == "LOOP_REFUSED":
            assert callers[0].lower() in no.value.message.lower()
        await side.check_nothing_held()
        assert await side.journal.load_assignment("dlg_1") is None


async def test_a_call_works_no_longer_than_its_caller_and_knows_who_called(tmp_path: Path) -> None:
    chain = {"execution_chain": ["a@node-1"], "lease_id": "lse_1", "ttl": 20}
    async with worker(tmp_path) as side:
        asked = invite()
        message = asked.model_copy(
            update={"sublet": type(asked.sublet).model_validate({**asked.sublet.model_dump(), "chain": chain})}
        )
        accept = await side.executor.invite(message, ALICE, source_host=HERE)
        assert accept.remote_constraints.max_ttl_seconds == 20
        await side.updates(side.start(accept))
        [job] = side.agent.jobs
        assert job.chain.execution_chain == ("a@node-1",)
        assert job.chain.ttl is not None
        assert job.chain.ttl <= 20

"""The next process takes over what a killed one has left, in whatever state it was."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from sublet.daemon.api.delegation_views import ResultView
from sublet.daemon.lending.delegator import Delegator
from sublet.daemon.storage.records import DelegationRecord
from sublet.daemon.times import rfc3339
from sublet.protocol.errors import SubletError
from sublet.protocol.lifecycle import DelegationState
from sublet.workspace.serving.lease_memory import LeaseMemory
from support.lender import ME, Lender, bob_alone, lender
from support.scripted_link import BOB, accept, accepting

pytestmark = pytest.mark.anyio

S = DelegationState
WAY = (S.CREATED, S.INVITED, S.ACCEPTED, S.STARTED, S.RUNNING)


@asynccontextmanager
async def killed(
    root: Path, *ways: Sequence[S], left: float = 60, renewable: bool = True, **last: object
) -> AsyncIterator[tuple[Lender, list[str]]]:
    """A delegator whose last process died with one delegation at the end of each of ``ways``, not serving yet."""
    async with lender(root) as side:
        found = []
        for number, way in enumerate(ways):
            project = root / f"project{number}"
            project.mkdir()
            side.link.answer = accepting(sublet={"renewable": renewable})
            found.append(await _left(side, project, way, left, renewable, last))
        side.delegator = Delegator(
            side.delegator._tools,
            bob_alone,
        )
        yield side, found


async def _left(
    side: Lender, project: Path, way: Sequence[S], left: float, renewable: bool, last: dict[str, object]
) -> str:
    from sublet.daemon.lending.agreement import new_record
    from sublet.daemon.lending.lent_resources import asked_for
    from sublet.protocol.chain import Chain
    from support.worker import invite

    request = side.request(workspace_dir=str(project))
    quota = side.delegator._quota(request)
    record = new_record(request, f"{ME.kind}:", asked_for(request), BOB, None, 60, quota, Chain())
    snapshot = side.auditor.baseline(project, side.delegator._tools.trees.of(record).resources[0].rules)
    (project / "theirs.txt").write_text("x")
    (project / "mine.txt").write_text("x")
    news: dict[str, object] = {}
    for state in way:
        if state is S.INVITED:
            news |= {"snapshots": {"workspace": snapshot}}
        if state is S.ACCEPTED:
            agreed = accept(invite(record.id), sublet={"renewable": renewable})
            news |= {"task_id": f"tsk_{record.id}", "context_id": record.id, "accept": agreed, "transport": "sshfs"}
        if state is S.STARTED:
            news |= {"expires_at": rfc3339(time.time() + left)}
            memory = LeaseMemory(side.root / "leases" / record.id)
            memory.touch("workspace", b"theirs.txt")
            memory.close()
        record = record.model_copy(update={"state": state, **news})
        await side.journal.save_delegation(record)
    await side.journal.save_delegation(record.model_copy(update=last))
    return record.id


@asynccontextmanager
async def serving(side: Lender) -> AsyncIterator[None]:
    async with anyio.create_task_group() as group:
        group.start_soon(side.delegator.serve)
        yield
        group.cancel_scope.cancel()


async def test_whatever_it_was_doing_it_goes_on_and_ends_once(tmp_path: Path) -> None:
    ways = [WAY[:length] for length in range(1, len(WAY) + 1)]
    async with killed(tmp_path, *ways) as (side, found), serving(side):
        for one in found:
            side.link.done(one)
            await side.delegator.wait(one, 20)
        records = [await side.record(one) for one in found]
        assert [record.state for record in records] == [S.COMPLETED] * len(WAY)
        assert all(record.settled and record.generation == 2 for record in records)
        assert {invite.delegation_id for invite in side.link.invites} == set(found[:2])
        assert {task.context_id for task in side.link.followed} == set(found[3:])
        assert {start.delegation_id: start.sublet.generation for start in side.link.starts} == dict.fromkeys(found, 2)
        for record in records[3:]:
            assert record.audit is not None
            assert record.audit.by_others == ["mine.txt"]
            assert {file.path: file.by for file in record.audit.files} == {
                "theirs.txt": "executor",
                "mine.txt": "other",
            }
        assert await side.journal.resources.open_resources() == []
        assert list((side.root / "leases").iterdir()) == []


@pytest.mark.parametrize(("left", "renewable", "state"), [(60, False, S.ERROR), (-1, True, S.EXPIRED)])
async def test_what_can_not_go_on_ends_truthfully_and_the_peer_is_told(
    tmp_path: Path, left: float, renewable: bool, state: S
) -> None:
    async with killed(tmp_path, WAY, left=left, renewable=renewable) as (side, (one,)), serving(side):
        view = await side.delegator.wait(one, 20)
        assert view.state is state
        assert view.audit is not None
        assert view.audit.by_others == ["mine.txt"]
        assert side.link.cancelled == [f"tsk_{one}"]
        assert side.link.starts == []


async def test_what_was_done_is_settled(tmp_path: Path) -> None:
    async with killed(tmp_path, WAY, result=ResultView(final_summary="all done")) as (side, (one,)), serving(side):
        view = await side.delegator.wait(one, 20)
        assert view.state is S.COMPLETED
        assert view.audit is not None
        assert side.link.cancelled == []


async def test_a_directory_that_was_replaced_is_not_served(tmp_path: Path) -> None:
    async with killed(tmp_path, WAY) as (side, (one,)):
        memory = LeaseMemory(side.root / "leases" / one)
        memory.root("workspace", (1, 2))
        memory.close()
        async with serving(side):
            view = await side.delegator.wait(one, 20)
            assert view.error is not None
            assert view.error.code == "WORKSPACE_INVALID"
            assert side.link.starts == []


async def test_a_zombie_changes_nothing(tmp_path: Path) -> None:
    async with killed(tmp_path, WAY) as (side, (one,)), serving(side):
        zombie: DelegationRecord = await side.record(one)
        await side.until(one, "running")
        with anyio.fail_after(10):
            while (await side.record(one)).generation == zombie.generation:
                await anyio.sleep(0.01)
        with pytest.raises(SubletError, match="newer process"):
            await side.journal.save_delegation(zombie.model_copy(update={"state": S.ERROR}))
        side.link.done(one)
        assert (await side.delegator.wait(one, 20)).state is S.COMPLETED

"""A delegation over A2A from INVITE to its end, with both of our sides."""

from __future__ import annotations

import asyncio

import pytest
from a2a.types import GetTaskRequest, TaskState

from sublet.a2a_client.client import A2APeerLink
from sublet.daemon.ports.peer_link import RemoteTask, Update
from sublet.protocol.errors import AgentEnd, ErrorCode, LocalCode, SubletError
from sublet.protocol.messages import MAX_ERROR_CHARS, Accept, Done, Error, Progress
from support.a2a_world import SECRET, World, a_progress, a_start, an_invite

pytestmark = pytest.mark.anyio


async def accepted(bob: World, link: A2APeerLink, delegation_id: str | None = None) -> tuple[RemoteTask, Accept]:
    task, answer = await link.invite(bob.peer(), an_invite(delegation_id))
    assert isinstance(answer, Accept)
    return task, answer


async def followed(bob: World, link: A2APeerLink, task: RemoteTask) -> list[Update]:
    return [update async for update in link.run(bob.peer(), task, a_start(task.context_id))]


async def test_invite_start_done(bob: World, link: A2APeerLink) -> None:
    bob.executor.updates = [a_progress("", phase="mounting"), a_progress("hello\n")]
    task, accept = await accepted(bob, link)
    assert task.context_id == accept.delegation_id
    *progress, done = await followed(bob, link, task)
    assert isinstance(done, Done)
    assert done.final_summary == "all done"
    assert [update.phase for update in progress if isinstance(update, Progress)] == ["mounting", "running"]
    assert bob.executor.started[0].mount.credential == SECRET
    assert bob.executor.sources == ["127.0.0.1"]
    assert bob.executor.closed == [task.context_id]


async def test_a_refusal_is_a_rejected_task_with_a_signed_error(bob: World, link: A2APeerLink) -> None:
    bob.executor.refusal = SubletError(ErrorCode.DECLINED, "all slots are taken", "Wait.", retry_after_seconds=30)
    task, answer = await link.invite(bob.peer(), an_invite())
    assert isinstance(answer, Error)
    assert (answer.code, answer.message, answer.hint) == (ErrorCode.DECLINED, "all slots are taken", "Wait.")
    assert answer.sublet.retry_after_seconds == 30
    assert answer.sublet.signature is not None
    async with bob.rpc(bob.alice) as rpc:
        assert (await rpc.get_task(GetTaskRequest(id=task.task_id))).status.state == TaskState.TASK_STATE_REJECTED


@pytest.mark.parametrize(
    ("failure", "code"),
    [
        (SubletError(ErrorCode.MOUNT_FAILED, "no mount"), ErrorCode.MOUNT_FAILED),
        (SubletError(LocalCode.POLICY_DENIED, "/etc/secret says no"), ErrorCode.TASK_FAILED),
        (OSError("/home/bob is full"), ErrorCode.TASK_FAILED),
    ],
)
async def test_a_failure_is_a_failed_task_and_local_reasons_stay_local(
    bob: World, link: A2APeerLink, failure: Exception, code: ErrorCode
) -> None:
    bob.executor.failure = failure
    task, _ = await accepted(bob, link)
    (end,) = await followed(bob, link, task)
    assert isinstance(end, Error)
    assert end.code == code
    assert "/" not in end.message


async def test_what_a_failed_agent_printed_travels_beside_the_reason(bob: World, link: A2APeerLink) -> None:
    printed = "x" * 20_000 + "\nline one\nline two"
    bob.executor.failure = SubletError(ErrorCode.TASK_FAILED, "exit code 1", agent_end=AgentEnd("failed", 1, printed))
    task, _ = await accepted(bob, link)
    (end,) = await followed(bob, link, task)
    assert isinstance(end, Error)
    assert (end.message, end.sublet.exit_code, end.sublet.reason) == ("exit code 1", 1, "failed")
    assert end.sublet.output_tail == printed[-MAX_ERROR_CHARS:]


async def test_cancel_stops_the_work(bob: World, link: A2APeerLink) -> None:
    bob.executor.gate.clear()
    task, _ = await accepted(bob, link)
    async with asyncio.TaskGroup() as group:
        following = group.create_task(followed(bob, link, task))
        await bob.executor.running.wait()
        await link.cancel(bob.peer(), task)
        await link.cancel(bob.peer(), task)
    (end,) = following.result()
    assert isinstance(end, Error)
    assert end.code == ErrorCode.CANCELLED
    assert set(bob.executor.cancelled) == {task.context_id}
    assert bob.executor.closed == [task.context_id]


async def test_cancel_of_a_task_that_is_over_is_quiet(bob: World, link: A2APeerLink) -> None:
    task, _ = await accepted(bob, link)
    await followed(bob, link, task)
    await link.cancel(bob.peer(), task)
    await link.cancel(bob.peer(), RemoteTask("tsk_unknown", "dlg_unknown"))


async def test_agents_come_from_the_signed_card(bob: World, link: A2APeerLink) -> None:
    (agent,) = await link.agents(bob.peer())
    assert (agent.id, agent.description, agent.skills) == ("shell", "Runs scripts", ["run"])


async def test_the_credential_is_nowhere_on_the_disk_or_in_the_task(bob: World, link: A2APeerLink) -> None:
    """Trap: messages become task history."""
    bob.executor.gate.clear()
    task, _ = await accepted(bob, link)
    async with asyncio.TaskGroup() as group:
        group.create_task(followed(bob, link, task))
        await bob.executor.running.wait()
        async with bob.rpc(bob.alice) as rpc:
            assert SECRET not in str(await rpc.get_task(GetTaskRequest(id=task.task_id)))
        bob.executor.gate.set()
    files = [path for path in bob.database.parent.iterdir() if path.is_file()]
    assert bob.database in files
    assert all(SECRET.encode() not in path.read_bytes() for path in files)
